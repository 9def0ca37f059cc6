import { databaseUrl } from "../kit/database-url.ts";
import { setting } from "../kit/setting.ts";
import { integer, line } from "../kit/setting-kinds.ts";

/** Which database, and how it is opened. */
export const storeSettings = {
  db: setting({
    flag: "--db",
    env: "SVC_DB",
    parse: line("FILE"),
    fallback: ".svc/svc.db",
    about: "Database file of a single node (libSQL).",
  }),
  databaseUrl: setting({
    flag: "--database-url",
    env: "SVC_DATABASE_URL",
    parse: databaseUrl,
    fallback: undefined,
    secret: true,
    about:
      "PostgreSQL instead of the file; several nodes need it. If the URL names several hosts, svc uses the one that accepts writes.",
  }),
  databaseTlsCaFile: setting({
    env: "SVC_DATABASE_TLS_CA_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Only a PostgreSQL with a certificate of this CA (PEM) and its own host name is spoken to.",
  }),
  poolSize: setting({
    env: "SVC_POOL_SIZE",
    parse: integer(2, 500, "connections"),
    fallback: 25,
    about: "PostgreSQL connections of this node.",
  }),
};
