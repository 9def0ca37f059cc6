import { setting } from "../kit/setting.ts";
import { line, url } from "../kit/setting-kinds.ts";

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
