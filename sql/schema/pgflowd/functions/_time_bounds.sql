-- _time_bounds(): the bounds of the histograms of `minutes`, in seconds: those of the metrics.
-- Called by: _quantile.   Locks: nothing.
create or replace function pgflowd._time_bounds()
returns float8[] language sql immutable
return '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300}'::float8[];
