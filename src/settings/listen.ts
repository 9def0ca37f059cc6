import { boolean, integer, line, setting } from "../kit/setting.ts";

export const grpcPortDefault = 9190;

/** Where the server listens, and whether it knows its callers. */
export const listenSettings = {
  port: setting({
    flag: "--port",
    env: "SVC_PORT",
    parse: integer(0, 65_535),
    fallback: 9123,
    about: "Port of HTTP: API, RPC, sockets, dashboard and docs; 0 takes a free one.",
  }),
  host: setting({
    flag: "--host",
    env: "SVC_HOST",
    parse: line("ADDRESS"),
    fallback: "127.0.0.1",
    about: "Address to listen on; 0.0.0.0 for every network of this machine.",
  }),
  grpcPort: setting({
    flag: "--grpc-port",
    env: "SVC_GRPC_PORT",
    parse: integer(0, 65_535),
    fallback: undefined,
    otherwise: `${grpcPortDefault}, or no gRPC where another program has that`,
    about: "Port for gRPC; 0 switches it off.",
  }),
  tlsCertFile: setting({
    env: "SVC_TLS_CERT_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Certificate chain (PEM) of both ports; with SVC_TLS_KEY_FILE, and then TLS only.",
  }),
  tlsKeyFile: setting({
    env: "SVC_TLS_KEY_FILE",
    parse: line("FILE"),
    fallback: undefined,
    about: "Private key (PEM) of SVC_TLS_CERT_FILE.",
  }),
  discovery: setting({
    flag: "--discovery",
    env: "SVC_DISCOVERY",
    parse: boolean,
    fallback: undefined,
    otherwise: "with --dev",
    about:
      "Say in `.svc/engine.json` of this folder, for its owner alone, where the server is, with the first admin key: the SDK and commands of the folder find it.",
  }),
  noDiscovery: setting({
    env: "SVC_NO_DISCOVERY",
    parse: boolean,
    fallback: false,
    about: "Write no such file; the SDK and commands read none.",
  }),
  dev: setting({
    flag: "--dev",
    env: "SVC_DEV",
    parse: boolean,
    fallback: false,
    about: "No authentication: every caller is admin. Loopback addresses only.",
  }),
};
