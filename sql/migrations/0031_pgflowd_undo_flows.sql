-- Migration 0031: list_flows has one more column. A released migration never changes.
drop function if exists pgflowd.list_flows();
