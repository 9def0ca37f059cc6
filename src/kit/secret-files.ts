import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";

/**
 * A file that a setting names and that cannot be used; says the setting and the path, never what is in the
 * file.
 */
export class FileProblem extends Error {
  constructor(setting: string, path: string, problem: string, cause?: unknown) {
    super(`${setting}: ${path} ${problem}`, { cause });
    this.name = "FileProblem";
  }
}

/** A small text file that must be there at the start. */
function readSettingFile(setting: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const code = (error as { code?: string }).code ?? "unknown reason";
    throw new FileProblem(setting, path, `cannot be read (${code})`, error);
  }
}

function certificateIn(setting: string, path: string, pem: string): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch (error) {
    throw new FileProblem(setting, path, "holds no certificate in PEM form", error);
  }
}

export interface NamedFile {
  setting: string;
  path: string;
}

/** The certificates of a CA, as text. */
function readCa({ setting, path }: NamedFile): string {
  const pem = readSettingFile(setting, path);
  certificateIn(setting, path, pem);
  return pem;
}

export interface KeyPair {
  cert: string;
  key: string;
}

/** A certificate chain and its private key, which must belong together. */
function readKeyPair(certFile: NamedFile, keyFile: NamedFile): KeyPair {
  const cert = readSettingFile(certFile.setting, certFile.path);
  const key = readSettingFile(keyFile.setting, keyFile.path);
  const certificate = certificateIn(certFile.setting, certFile.path, cert);
  let fits: boolean;
  try {
    fits = certificate.checkPrivateKey(createPrivateKey(key));
  } catch {
    // Without its cause: that may quote the key.
    throw new FileProblem(
      keyFile.setting,
      keyFile.path,
      "holds no private key in PEM form without a password",
    );
  }
  if (!fits) {
    throw new FileProblem(
      keyFile.setting,
      keyFile.path,
      `is not the key of ${certFile.setting} ${certFile.path}`,
    );
  }
  return { cert, key };
}

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
