-- Settings for printing definitions, so that equal ones have equal fingerprints in every session.
set local search_path = '';
set local quote_all_identifiers = off;
set local standard_conforming_strings = on;
set local intervalstyle = 'postgres';
set local datestyle = 'ISO, YMD';
set local timezone = 'UTC';
set local bytea_output = 'hex';
set local extra_float_digits = 1;
