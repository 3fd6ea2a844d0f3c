-- wanted_output(max_runs): returns runs whose followers want what handlers print, the last ones first.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.wanted_output(max_runs int)
returns uuid[] language plpgsql stable set search_path = '', pg_temp as $$
begin
  return array(select follower.run_id from pgflowd.followers as follower
                where follower.with_output and follower.expires_at > now()
                order by follower.expires_at desc limit max_runs);
end $$;
