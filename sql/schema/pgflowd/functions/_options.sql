-- _options(): the options of steps that have a column of their own: the name in shapes, the column in
-- pgflow.steps or pgflowd.step_options, whether flows have the option too, and what is in force where
-- neither says anything. Modes belong to the shape. The others may be tuned in the database
-- (set_option): whole numbers from `lowest` to `highest`, or one of `words`; of a limit the number of
-- places. This is the one list of them: other functions ask here. Queries inline it, so it has no
-- settings of its own.
-- Called by: _default_options, _followed_options, _is_option, _shape_fingerprint, _tunable_options,
-- _write_option, flow_shape, pgflow._compare_steps, pgflow._get_flow_shape,
-- pgflow.analyze_and_create_flow.
-- Locks: nothing.
create or replace function pgflowd._options()
returns table (name text, field text, is_mode boolean, is_of_flow boolean, preset jsonb, lowest int,
               highest int, words text[])
language sql immutable begin atomic
  values ('whenUnmet', 'when_unmet', true, false, '"skip"'::jsonb, null::int, null::int,
          '{fail,skip,skip-cascade}'::text[]),
         ('whenExhausted', 'when_exhausted', true, false, '"fail"', null, null, '{fail,skip,skip-cascade}'),
         ('maxAttempts', 'opt_max_attempts', false, true, '3', 1, 2147483647, null),
         ('baseDelay', 'opt_base_delay', false, true, '5', 0, 2147483647, null),
         ('timeout', 'opt_timeout', false, true, '60', 1, 2147483647, null),
         ('startDelay', 'opt_start_delay', false, false, null, 0, 2147483647, null),
         ('limit', 'limit_slots', false, false, null, 1, 1000000, null),
         ('crashLimit', 'crash_limit', false, false, null, 1, 1000, null),
         ('onCrashLimit', 'on_crash_limit', false, false, null, null, null, '{fail,quarantine}');
end;
