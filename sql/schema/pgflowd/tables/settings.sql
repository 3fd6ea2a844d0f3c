-- settings: what all daemons on this database share. No row means the default. Functions setting
-- and set_setting define which names and values there are.
create table if not exists pgflowd.settings (
  name text not null,
  value jsonb not null,
  changed_by text,
  changed_at timestamptz not null default now(),
  constraint settings_pkey primary key (name)
);
