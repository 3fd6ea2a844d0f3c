-- _fill_template(template, input, is_whole): returns the template with its placeholders, such as
-- {run.customer}, filled from the input; missing ones are left out, or, with `is_whole`, raise PF009.
-- Null without a template.
-- Called by: _start, start_child.   Locks: nothing.
create or replace function pgflowd._fill_template(template text, input jsonb, is_whole boolean default false)
returns text language plpgsql stable set search_path = '', pg_temp as $$
declare
  filled text := case when _fill_template.template is not null then '' end;
  part text[];
  value text;
begin
  for part in select one from regexp_matches(_fill_template.template, '([^{}]+)|\{([^{}]*)\}', 'g') as one loop
    value := coalesce(part[1], pgflowd._input_part(_fill_template.input, part[2]));
    if value is null and _fill_template.is_whole then
      raise exception 'the singleton key % is made of %, which the input lacks',
                      quote_literal(_fill_template.template), part[2]
        using errcode = 'PF009', hint = 'give it, or start with a singleton key';
    end if;
    filled := filled || coalesce(value, '');
  end loop;
  return filled;
end $$;
