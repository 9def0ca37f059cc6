import { boundedName, gatheredName } from "./environment-databases.ts";

/** What a query may gather in one value, and how large a value: PostgreSQL's own bound is a gigabyte. */
export const gatheredRowsMax = 10_000;
export const gatheredBytesMax = 16 * 1024 * 1024;
/** What each value needs beside its bytes. */
const placeBytes = 24;

const raise = (message: string): string => `RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = '${message}'`;

/** Statements that make both in a schema, as the server's own role; `search_path` finds them there. */
export const wallsOf = (schema: string): readonly string[] => [
  `CREATE OR REPLACE FUNCTION ${schema}.${boundedName}(value anyelement) RETURNS anyelement
    LANGUAGE plpgsql STABLE PARALLEL SAFE AS $do$ BEGIN
    IF pg_catalog.pg_column_size(value) > ${gatheredBytesMax} THEN
      ${raise(`a value has more than ${gatheredBytesMax} bytes`)};
    END IF;
    RETURN value; END $do$`,
  `CREATE OR REPLACE FUNCTION ${schema}.svc_gather(state bigint[], value anyelement, other text) RETURNS bigint[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE AS $do$ BEGIN
    state[1] := state[1] + 1;
    state[2] := state[2] + ${placeBytes} + coalesce(pg_catalog.octet_length(value::text), 0)
      + coalesce(pg_catalog.octet_length(other), 0);
    IF state[1] > ${gatheredRowsMax} THEN
      ${raise(`more than ${gatheredRowsMax} rows are gathered in one value`)};
    END IF;
    IF state[2] > ${gatheredBytesMax} THEN
      ${raise(`more than ${gatheredBytesMax} bytes are gathered in one value`)};
    END IF;
    RETURN state; END $do$`,
  `CREATE OR REPLACE AGGREGATE ${schema}.${gatheredName}(anyelement, text)
    (SFUNC = ${schema}.svc_gather, STYPE = bigint[], INITCOND = '{0,0}')`,
];
