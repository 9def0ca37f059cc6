import { line, matching, setting } from "../kit/setting.ts";

/** The name of this node, what the first boot makes, and the keys that seal and sign. */
export const firstBootSettings = {
  nodeId: setting({
    flag: "--node-id",
    env: "SVC_NODE_ID",
    parse: matching(/^[A-Za-z0-9_-]{1,63}$/, "1 to 63 of A-Z a-z 0-9 _ -", "NAME"),
    fallback: undefined,
    otherwise: "a new one at every start",
    about: "Name of this node among its kind.",
  }),
  bootstrapKeyFile: setting({
    flag: "--bootstrap-key-file",
    env: "SVC_BOOTSTRAP_KEY_FILE",
    parse: line("FILE"),
    fallback: undefined,
    otherwise:
      "`.ssvc_bootstrap_key.json` beside the database file, or `.svc_bootstrap_key.json` in the temporary folder",
    about: "Where the first boot writes the admin key (mode 0400).",
  }),
  bootstrapAdminKey: setting({
    env: "SVC_BOOTSTRAP_ADMIN_KEY",
    parse: matching(/^[\x21-\x7e]{20,200}$/, "20 to 200 printable characters without spaces", "KEY"),
    fallback: undefined,
    otherwise: "a random one",
    secret: true,
    about: "The admin key of the first boot.",
  }),
  bootstrapAdminPassword: setting({
    env: "SVC_BOOTSTRAP_ADMIN_PASSWORD",
    parse: matching(/^[^\0\r\n]{8,256}$/, "8 to 256 characters on one line", "PASSWORD"),
    fallback: undefined,
    otherwise: "a random one",
    secret: true,
    about: "The dashboard password of the first boot.",
  }),
  masterKey: setting({
    env: "SVC_MASTER_KEY",
    parse: matching(/^[0-9a-fA-F]{64}$/, "32 bytes in hex, 64 characters", "HEX"),
    fallback: undefined,
    otherwise: "a random one in `.svc_master_key` beside the database file",
    secret: true,
    about: "What secrets are sealed with; the same on every node.",
  }),
  jwtSecret: setting({
    env: "SVC_JWT_SECRET",
    parse: matching(/^[\x21-\x7e]{32,512}$/, "32 to 512 printable characters without spaces", "SECRET"),
    fallback: undefined,
    otherwise: "a random one, kept sealed in the database",
    secret: true,
    about: "What dashboard tokens are signed with.",
  }),
  signingKey: setting({
    env: "SVC_SIGNING_KEY",
    parse: matching(/^[\x21-\x7e]{32,512}$/, "32 to 512 printable characters without spaces", "SECRET"),
    fallback: undefined,
    otherwise: "a random one, kept sealed in the database",
    secret: true,
    about: "What requests to push endpoints are signed with.",
  }),
};
