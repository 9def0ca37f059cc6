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
export function readSettingFile(setting: string, path: string): string {
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
export function readCa({ setting, path }: NamedFile): string {
  const pem = readSettingFile(setting, path);
  certificateIn(setting, path, pem);
  return pem;
}

export interface KeyPair {
  cert: string;
  key: string;
}

/** A certificate chain and its private key, which must belong together. */
export function readKeyPair(certFile: NamedFile, keyFile: NamedFile): KeyPair {
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
