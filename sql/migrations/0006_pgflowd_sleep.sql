-- Flows that sleep: list_flows has one more column.
drop function if exists pgflowd.list_flows();
