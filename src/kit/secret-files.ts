import { readCa, readKeyPair, readSettingFile } from "./tls-files.ts";

/** Paths by the names of their settings. */
export interface SecretPaths {
  tlsCertFile?: string | undefined;
  tlsKeyFile?: string | undefined;
  databaseTlsCaFile?: string | undefined;
  natsCredsFile?: string | undefined;
  natsTlsCaFile?: string | undefined;
  natsTlsCertFile?: string | undefined;
  natsTlsKeyFile?: string | undefined;
}

const pairOf = (cert: [string, string | undefined], key: [string, string | undefined]) =>
  cert[1] === undefined || key[1] === undefined
    ? undefined
    : readKeyPair({ setting: cert[0], path: cert[1] }, { setting: key[0], path: key[1] });

const caOf = (setting: string, path: string | undefined) =>
  path === undefined ? undefined : readCa({ setting, path });

/**
 * The certificates, keys and credentials that the settings name; throws FileProblem when one cannot be used.
 */
export function secretFiles(paths: SecretPaths) {
  const { databaseTlsCaFile, natsTlsCaFile, natsCredsFile } = paths;
  const databaseCa = caOf("SVC_DATABASE_TLS_CA_FILE", databaseTlsCaFile);
  const busCa = caOf("NATS_TLS_CA_FILE", natsTlsCaFile);
  const busPair = pairOf(
    ["NATS_TLS_CERT_FILE", paths.natsTlsCertFile],
    ["NATS_TLS_KEY_FILE", paths.natsTlsKeyFile],
  );
  const credentials =
    natsCredsFile === undefined ? undefined : () => readSettingFile("NATS_CREDS_FILE", natsCredsFile);
  // Read once at the start, so that a wrong path is reported then.
  credentials?.();
  return {
    /** Of both ports. */
    tls: pairOf(["SVC_TLS_CERT_FILE", paths.tlsCertFile], ["SVC_TLS_KEY_FILE", paths.tlsKeyFile]),
    databaseTls: databaseCa === undefined ? undefined : { ca: databaseCa },
    natsAccess: {
      credentials,
      tls:
        busCa === undefined && busPair === undefined
          ? undefined
          : { ...(busCa && { ca: busCa }), ...busPair },
    },
  };
}
