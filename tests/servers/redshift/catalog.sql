-- What Redshift has and PostgreSQL lacks. The schema comes before pg_catalog in the search path.
CREATE SCHEMA redshift;

-- VARCHAR: stored as it is, compared without regard to trailing blanks. The functions are those
-- of PostgreSQL's own types: in and out as varchar, comparison as bpchar.
CREATE TYPE redshift."character varying";
CREATE FUNCTION redshift.varchar_in(cstring, oid, integer) RETURNS redshift."character varying"
  LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'varcharin';
CREATE FUNCTION redshift.varchar_out(redshift."character varying") RETURNS cstring
  LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'varcharout';
CREATE FUNCTION redshift.varchar_recv(internal, oid, integer) RETURNS redshift."character varying"
  LANGUAGE internal STABLE STRICT PARALLEL SAFE AS 'varcharrecv';
CREATE FUNCTION redshift.varchar_send(redshift."character varying") RETURNS bytea
  LANGUAGE internal STABLE STRICT PARALLEL SAFE AS 'varcharsend';
CREATE TYPE redshift."character varying" (
  INPUT = redshift.varchar_in, OUTPUT = redshift.varchar_out,
  RECEIVE = redshift.varchar_recv, SEND = redshift.varchar_send,
  TYPMOD_IN = varchartypmodin, TYPMOD_OUT = varchartypmodout,
  LIKE = pg_catalog.varchar, CATEGORY = 'S', COLLATABLE = true);

-- The length is one in bytes. Blanks that are too many are cut off, as in any explicit cast.
CREATE FUNCTION redshift.varchar_of_length(redshift."character varying", integer, boolean)
  RETURNS redshift."character varying" LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  most integer := $2 - 4;
  kept text := $1::text;
BEGIN
  IF octet_length(kept) <= most THEN RETURN $1; END IF;
  IF octet_length(rtrim(kept, ' ')) > most AND NOT $3 THEN
    RAISE EXCEPTION 'value too long for type character varying(%)', most USING ERRCODE = '22001';
  END IF;
  WHILE octet_length(kept) > most LOOP kept := left(kept, -1); END LOOP;
  RETURN kept;
END $$;

CREATE CAST (redshift."character varying" AS text) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (redshift."character varying" AS varchar) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (text AS redshift."character varying") WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (varchar AS redshift."character varying") WITHOUT FUNCTION AS ASSIGNMENT;
CREATE CAST (redshift."character varying" AS redshift."character varying")
  WITH FUNCTION redshift.varchar_of_length(redshift."character varying", integer, boolean)
  AS IMPLICIT;

-- Comparison, of VARCHAR and of the text that functions return.
DO $$
DECLARE
  kind text;
  suffix text;
  operators text[][] := ARRAY[['=', 'eq', '=', '<>'], ['<>', 'ne', '<>', '='],
    ['<', 'lt', '>', '>='], ['<=', 'le', '>=', '>'], ['>', 'gt', '<', '<='], ['>=', 'ge', '<=', '<']];
  found text[];
BEGIN
  FOREACH kind IN ARRAY ARRAY['redshift."character varying"', 'text'] LOOP
    suffix := CASE kind WHEN 'text' THEN 'text' ELSE 'varchar' END;
    FOREACH found SLICE 1 IN ARRAY operators LOOP
      EXECUTE format('CREATE FUNCTION redshift.%s_%s(%s, %3$s) RETURNS boolean LANGUAGE internal'
        ' IMMUTABLE STRICT PARALLEL SAFE AS %L', suffix, found[2], kind, 'bpchar' || found[2]);
      EXECUTE format('CREATE OPERATOR redshift.%s (FUNCTION = redshift.%s_%s, LEFTARG = %s,'
        ' RIGHTARG = %4$s, COMMUTATOR = OPERATOR(redshift.%s), NEGATOR = OPERATOR(redshift.%s)%s)',
        found[1], suffix, found[2], kind, found[3], found[4],
        CASE WHEN found[1] = '=' AND kind <> 'text' THEN ', HASHES, MERGES, RESTRICT = eqsel,'
          ' JOIN = eqjoinsel' ELSE '' END);
    END LOOP;
  END LOOP;
END $$;
CREATE FUNCTION redshift.varchar_cmp(redshift."character varying", redshift."character varying")
  RETURNS integer LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'bpcharcmp';
CREATE FUNCTION redshift.varchar_hash(redshift."character varying")
  RETURNS integer LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'hashbpchar';
CREATE OPERATOR CLASS redshift.varchar_order DEFAULT FOR TYPE redshift."character varying"
  USING btree AS
  OPERATOR 1 redshift.< (redshift."character varying", redshift."character varying"),
  OPERATOR 2 redshift.<= (redshift."character varying", redshift."character varying"),
  OPERATOR 3 redshift.= (redshift."character varying", redshift."character varying"),
  OPERATOR 4 redshift.>= (redshift."character varying", redshift."character varying"),
  OPERATOR 5 redshift.> (redshift."character varying", redshift."character varying"),
  FUNCTION 1 redshift.varchar_cmp(redshift."character varying", redshift."character varying");
CREATE OPERATOR CLASS redshift.varchar_hashes DEFAULT FOR TYPE redshift."character varying"
  USING hash AS
  OPERATOR 1 redshift.= (redshift."character varying", redshift."character varying"),
  FUNCTION 1 redshift.varchar_hash(redshift."character varying");

CREATE DOMAIN redshift."super" AS jsonb;

-- Whether an object, here or further in, names an attribute twice.
CREATE FUNCTION redshift.has_duplicates(json) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  CASE json_typeof($1)
    WHEN 'object' THEN
      RETURN (SELECT count(*) > count(DISTINCT key) FROM json_object_keys($1) AS key)
        OR (SELECT bool_or(redshift.has_duplicates(value)) FROM json_each($1)) IS TRUE;
    WHEN 'array' THEN
      RETURN (SELECT bool_or(redshift.has_duplicates(v)) FROM json_array_elements($1) v) IS TRUE;
    ELSE RETURN false;
  END CASE;
END $$;
CREATE FUNCTION redshift.longest_string(jsonb) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(max(octet_length(s #>> '{}')), 0)
  FROM jsonb_path_query($1, 'strict $.** ? (@.type() == "string")') AS s $$;
CREATE FUNCTION redshift.json_parse(text) RETURNS redshift."super" LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF current_setting('redshift.json_parse_dedup_attributes', true) IS DISTINCT FROM 'on'
     AND redshift.has_duplicates($1::json) THEN
    RAISE EXCEPTION 'JSON parsing error: duplicate attribute' USING ERRCODE = 'XX000';
  END IF;
  IF redshift.longest_string($1::jsonb) > 65535 THEN
    RAISE EXCEPTION 'String value exceeds the max size of 65535 bytes' USING ERRCODE = 'XX000';
  END IF;
  RETURN $1::jsonb;
END $$;
CREATE FUNCTION redshift.json_parse(bytea) RETURNS redshift."super" LANGUAGE sql STABLE AS
  $$ SELECT redshift.json_parse(convert_from($1, 'UTF8')) $$;

CREATE FUNCTION redshift.from_varbyte(bytea, text) RETURNS redshift."character varying"
  LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  shown text := CASE lower($2) WHEN 'hex' THEN encode($1, 'hex') ELSE convert_from($1, 'UTF8') END;
BEGIN
  IF octet_length(shown) > 65535 THEN
    RAISE EXCEPTION 'Value exceeds the maximum length of VARCHAR: 65535' USING ERRCODE = '22001';
  END IF;
  RETURN shown;
END $$;
CREATE FUNCTION redshift.varchar_bytes(redshift."character varying") RETURNS bytea
  LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT convert_to($1::text, 'UTF8') $$;
CREATE CAST (redshift."character varying" AS bytea)
  WITH FUNCTION redshift.varchar_bytes(redshift."character varying");

CREATE FUNCTION redshift.datediff(text, timestamp, timestamp) RETURNS bigint
  LANGUAGE sql IMMUTABLE STRICT AS
  $$ SELECT (extract(epoch FROM $3) * 1000000)::bigint - (extract(epoch FROM $2) * 1000000)::bigint
     WHERE $1 = 'microsecond' $$;

-- Distribution, sort order, encoding and keys of a column, which are kept in its comment.
CREATE VIEW redshift.svv_redshift_columns AS
  SELECT current_database() AS database_name, n.nspname AS schema_name, c.relname AS table_name,
    a.attname AS column_name, a.attnum AS ordinal_position,
    coalesce(d.kept ->> 'encoding', 'none') AS encoding,
    coalesce((d.kept ->> 'distkey')::boolean, false) AS distkey,
    coalesce((d.kept ->> 'sortkey')::integer, 0) AS sortkey
  FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  CROSS JOIN LATERAL (SELECT col_description(c.oid, a.attnum)::jsonb AS kept) AS d
  WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'r'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema');

-- Primary keys, which are not enforced. A constraint has its table's number here.
CREATE VIEW redshift.pg_constraint AS
  SELECT c.oid, c.relname || '_pkey' AS conname, c.relnamespace AS connamespace, 'p'::"char" AS contype,
    c.oid AS conrelid
  FROM pg_catalog.pg_class AS c WHERE EXISTS (
    SELECT 1 FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND c.relkind = 'r' AND col_description(c.oid, a.attnum) LIKE '%"primary"%');
CREATE FUNCTION redshift.pg_get_constraintdef(oid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT 'PRIMARY KEY (' || string_agg(quote_ident(a.attname), ', '
    ORDER BY col_description($1, a.attnum)::jsonb -> 'primary') || ')'
  FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
    AND col_description($1, a.attnum) LIKE '%"primary"%' $$;

-- How tables are distributed, which is kept in the table's comment.
CREATE VIEW redshift.svv_table_info AS
  SELECT current_database() AS database, n.nspname AS schema, c.oid AS table_id,
    c.relname AS "table", obj_description(c.oid, 'pg_class') AS diststyle
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema');

CREATE FUNCTION redshift.format_type(oid, integer) RETURNS text LANGUAGE sql STABLE AS
  $$ SELECT replace(replace(pg_catalog.format_type($1, $2), 'redshift.', ''), '"', '') $$;
CREATE VIEW redshift.stv_sessions AS
  SELECT (backend_start AT TIME ZONE 'UTC')::timestamp AS starttime, pid AS process,
    usename::character(50) AS user_name, datname::character(50) AS db_name, 0 AS timeout_sec
  FROM pg_catalog.pg_stat_activity WHERE usename = current_user;
CREATE FUNCTION redshift.pg_last_copy_count() RETURNS bigint LANGUAGE sql STABLE AS
  $$ SELECT coalesce(nullif(current_setting('redshift.copy_count', true), ''), '0')::bigint $$;
CREATE FUNCTION redshift.pg_last_unload_count() RETURNS bigint LANGUAGE sql STABLE AS
  $$ SELECT coalesce(nullif(current_setting('redshift.unload_count', true), ''), '0')::bigint $$;
CREATE TABLE redshift.sys_load_error_detail (
  session_id integer, start_time timestamp DEFAULT (clock_timestamp() AT TIME ZONE 'UTC'),
  file_name character(256), line_number bigint, column_name character(127),
  column_type character(10), column_length character(10), error_code integer,
  error_message character(512));

-- Hashes and numbers for checksums.
CREATE FUNCTION redshift.sha2(text, integer) RETURNS redshift."character varying"
  LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF $2 <> 256 OR octet_length($1) > 65535 THEN
    RAISE EXCEPTION 'SHA2 of % bytes', octet_length($1) USING ERRCODE = '22001';
  END IF;
  RETURN encode(sha256(convert_to($1, 'UTF8')), 'hex');
END $$;
CREATE FUNCTION redshift.strtol(text, integer) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF $2 <> 16 OR length($1) > 15 THEN
    RAISE EXCEPTION 'The input % is not valid to be converted to base %', $1, $2;
  END IF;
  RETURN ('x' || lpad($1, 16, '0'))::bit(64)::bigint;
END $$;
