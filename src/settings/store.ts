import { databaseUrl } from "../kit/database-url.ts";
import { integer, line, setting, url } from "../kit/setting.ts";

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

/** The message bus between nodes. */
export const busSettings = {
  natsUrl: setting({
    flag: "--nats-url",
    env: "NATS_URL",
    parse: url("nats", "tls", "ws", "wss"),
    fallback: undefined,
    secret: true,
    about: "Message bus between nodes; without it this node is alone. May hold user:password or a token.",
  }),
  natsCredsFile: setting({
    env: "NATS_CREDS_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Credentials (JWT and seed) for the message bus, read again at every connection.",
  }),
  natsTlsCaFile: setting({
    env: "NATS_TLS_CA_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "CA (PEM) that the message bus must have its certificate from; switches TLS on.",
  }),
  natsTlsCertFile: setting({
    env: "NATS_TLS_CERT_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Certificate (PEM) of this node for the message bus; with NATS_TLS_KEY_FILE.",
  }),
  natsTlsKeyFile: setting({
    env: "NATS_TLS_KEY_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Private key (PEM) of NATS_TLS_CERT_FILE.",
  }),
};
