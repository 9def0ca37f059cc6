import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findProgram, removeFolder, run } from "./process.ts";

/** An authority with one server certificate for localhost and 127.0.0.1, valid for this day. */
export interface Authority {
  caFile: string;
  ca: string;
  certFile: string;
  keyFile: string;
  remove(): Promise<void>;
}

export async function makeAuthority(): Promise<Authority> {
  const folder = await mkdtemp(join(tmpdir(), "svc-ca-"));
  const openssl = findProgram(["openssl"], "openssl");
  const at = (name: string) => join(folder, name);
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  await run([
    openssl,
    "req",
    "-x509",
    ...key,
    "-subj",
    "/CN=svc test authority",
    "-keyout",
    at("ca.key"),
    "-out",
    at("ca.pem"),
  ]);
  await run([
    openssl,
    "req",
    ...key.slice(0, -2),
    "-subj",
    "/CN=localhost",
    "-keyout",
    at("server.key"),
    "-out",
    at("server.csr"),
  ]);
  await Bun.write(at("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  await run([
    ...[openssl, "x509", "-req", "-days", "2", "-in", at("server.csr"), "-extfile", at("names")],
    ...["-CA", at("ca.pem"), "-CAkey", at("ca.key"), "-CAcreateserial", "-out", at("server.pem")],
  ]);
  return {
    caFile: at("ca.pem"),
    ca: await readFile(at("ca.pem"), "utf8"),
    certFile: at("server.pem"),
    keyFile: at("server.key"),
    remove: () => removeFolder(folder),
  };
}
