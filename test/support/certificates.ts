import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findProgram, removeFolder, run } from "./process.ts";

export interface KeyFiles {
  certFile: string;
  keyFile: string;
}

export interface Authority {
  folder: string;
  caFile: string;
  /** A certificate of this authority for these names, such as `DNS:localhost` and `IP:127.0.0.1`. */
  issue(name: string, names: string[]): Promise<KeyFiles>;
  remove(): Promise<void>;
}

/** A certificate authority in a temporary folder. */
export async function makeAuthority(): Promise<Authority> {
  const openssl = findProgram(["openssl"], "openssl");
  const folder = await mkdtemp(join(tmpdir(), "svc-ca-"));
  const caFile = join(folder, "ca.crt");
  const caKey = join(folder, "ca.key");
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  await run([
    ...[openssl, "req", "-x509", ...curve, "-days", "2", "-subj", "/CN=svc test CA"],
    ...["-keyout", caKey, "-out", caFile],
  ]);
  return {
    folder,
    caFile,
    async issue(name, names) {
      const [certFile, keyFile] = [join(folder, `${name}.crt`), join(folder, `${name}.key`)];
      const [wish, extensions] = [join(folder, `${name}.csr`), join(folder, `${name}.ext`)];
      await writeFile(extensions, `subjectAltName=${names.join(",")}\n`);
      await run([openssl, "req", ...curve, "-subj", `/CN=${name}`, "-keyout", keyFile, "-out", wish]);
      await run([
        ...[openssl, "x509", "-req", "-in", wish, "-CA", caFile, "-CAkey", caKey, "-CAcreateserial"],
        ...["-days", "2", "-extfile", extensions, "-out", certFile],
      ]);
      return { certFile, keyFile };
    },
    remove: () => removeFolder(folder),
  };
}
