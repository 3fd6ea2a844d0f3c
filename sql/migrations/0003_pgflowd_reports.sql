-- Migration 0003: reports return the status of runs that they ended, and all go through the same
-- functions. These have other results, so they are dropped here and created anew afterwards.
-- A released migration never changes.

drop function if exists pgflowd.report(jsonb, text[]);
drop type if exists pgflowd.answer, pgflowd.element cascade;
