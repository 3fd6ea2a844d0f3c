-- Migration 0045: titles of runs. A released migration never changes.

alter table pgflowd.runs add column if not exists title text;
