-- Whether each object that the last migrate recorded is still there, as it was recorded.
select setting.it -> 'present' @> (setting.it -> 'known')
  from (select current_setting('pgflowd.before')::jsonb) as setting (it)
