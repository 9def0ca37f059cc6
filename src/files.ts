import { readFileSync } from "node:fs";
import { Fault } from "./kit/fault.ts";
import { type Config, settings } from "./settings.ts";

type FileSetting =
  | "tlsCertFile"
  | "tlsKeyFile"
  | "databaseTlsCaFile"
  | "natsCredsFile"
  | "natsTlsCaFile"
  | "natsTlsCertFile"
  | "natsTlsKeyFile";

/** Content of the file that a setting names; a fault that names the setting when there is none. */
function contentOf(config: Config, name: FileSetting): string | undefined {
  const path = config[name];
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const why = (cause as { code?: string }).code ?? "unreadable";
    throw new Fault("failed_precondition", `${settings[name].env}: ${path} cannot be read (${why})`, {
      cause,
    });
  }
}

/** Certificates, keys and credentials that settings name, read once at the start. */
export function filesOf(config: Config) {
  const of = (name: FileSetting) => contentOf(config, name);
  const cert = of("tlsCertFile");
  const key = of("tlsKeyFile");
  const databaseCa = of("databaseTlsCaFile");
  const natsTls = { ca: of("natsTlsCaFile"), cert: of("natsTlsCertFile"), key: of("natsTlsKeyFile") };
  const given = Object.entries(natsTls).filter(([, text]) => text !== undefined);
  const credentials = of("natsCredsFile");
  return {
    ...(cert !== undefined && key !== undefined && { tls: { cert, key } }),
    ...(databaseCa !== undefined && { databaseTls: { ca: databaseCa, rejectUnauthorized: true } }),
    nats: {
      ...(given.length > 0 && { tls: Object.fromEntries(given) }),
      ...(credentials !== undefined && { credentials: new TextEncoder().encode(credentials) }),
    },
  };
}
