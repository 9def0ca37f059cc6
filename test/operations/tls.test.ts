import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { join } from "node:path";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import type { Config } from "../../src/settings/settings.ts";
import { type Authority, type KeyFiles, makeAuthority } from "../support/certificates.ts";
import { freePort } from "../support/process.ts";
import { startTestServer } from "../support/server.ts";
import { startMadeUp } from "./edge-support.ts";

let authority: Authority;
let pair: KeyFiles;
let ca: string;
beforeAll(async () => {
  authority = await makeAuthority();
  pair = await authority.issue("server", ["DNS:localhost", "IP:127.0.0.1"]);
  ca = await readFile(authority.caFile, "utf8");
});
afterAll(() => authority.remove());

const settingsOf = ({ certFile, keyFile }: KeyFiles): Partial<Config> => ({
  tlsCertFile: certFile,
  tlsKeyFile: keyFile,
});

const code = (work: Promise<unknown>) =>
  work.then(
    () => "ok",
    (error) => (error instanceof ConnectError ? Code[error.code] : error.code),
  );

test("HTTPS, HTTP/2 by ALPN and gRPC with the CA; nothing without it, nothing in the clear", async () => {
  const grpcPort = await freePort();
  const server = await startTestServer({
    engine: "libsql",
    settings: { ...settingsOf(pair), grpcPort },
  });
  const { url, port, grpcUrl } = server.running;
  try {
    expect([url, grpcUrl]).toEqual([`https://127.0.0.1:${port}`, `https://127.0.0.1:${grpcPort}`]);
    expect((await fetch(`${url}/health`, { tls: { ca } })).status).toBe(200);
    await expect(fetch(`${url}/health`)).rejects.toThrow(/certificate/);
    await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow();

    const session = connectHttp2(url, { ca });
    const stream = session.request({ ":path": "/health" });
    const headers = await new Promise((done, failed) => {
      stream.on("response", done);
      session.on("error", failed);
    });
    expect([headers, session.alpnProtocol]).toMatchObject([{ ":status": 200 }, "h2"]);
    session.destroy();

    const client = (nodeOptions?: object) =>
      createClient(
        SvcService,
        createGrpcTransport({ baseUrl: grpcUrl!, ...(nodeOptions && { nodeOptions }) }),
      );
    expect((await client({ ca }).health({})).status).toBe("healthy");
    expect(await code(client().health({}))).not.toBe("ok");
    const clear = createGrpcTransport({ baseUrl: `http://127.0.0.1:${grpcPort}` });
    expect(await code(createClient(SvcService, clear).health({}))).not.toBe("ok");
    expect((await client({ ca }).health({})).status).toBe("healthy");
  } finally {
    await server.stop();
  }
});

test("a WebSocket over TLS", async () => {
  const [cert, key] = await Promise.all([readFile(pair.certFile, "utf8"), readFile(pair.keyFile, "utf8")]);
  const made = await startMadeUp({ tls: { cert, key } });
  try {
    const socket = new WebSocket(`${made.url.replace("https", "wss")}/ws/room`, {
      protocols: ["svc.v1"],
      tls: { ca },
    } as never);
    const said = await new Promise((done, failed) => {
      socket.onopen = () => socket.send("hello");
      socket.onmessage = ({ data }) => done(data);
      socket.onerror = () => failed(new Error("no socket"));
    });
    expect(said).toBe("room: hello");
    socket.close();
  } finally {
    await made.stop();
  }
});

test("bytes that are no TLS, and connections that never shake hands, harm nobody and hold up no stop", async () => {
  const [cert, key] = await Promise.all([readFile(pair.certFile, "utf8"), readFile(pair.keyFile, "utf8")]);
  const made = await startMadeUp({ tls: { cert, key } });
  const port = made.grpc.port;
  const opened = Array.from({ length: 40 }, (_, place) => {
    const socket = connect(port, "127.0.0.1");
    socket.on("error", () => {});
    // Every other one says nothing at all; a record of a handshake begins with 22, 3, 1.
    if (place % 4 === 1) socket.write(randomBytes(200));
    if (place % 4 === 3) socket.write(Buffer.concat([Buffer.from([22, 3, 1, 0, 200]), randomBytes(200)]));
    return new Promise((done) => socket.resume().on("close", done));
  });
  const transport = createGrpcTransport({ baseUrl: made.grpc.url, nodeOptions: { ca } });
  const headers = { authorization: "Bearer good" };
  expect((await createClient(SvcService, transport).getRun({ id: "r" }, { headers })).id).toBe("r");
  const startedAt = performance.now();
  await made.grpc.stop(25_000);
  await Promise.all(opened);
  expect(performance.now() - startedAt).toBeLessThan(15_000);
  await made.stop();
}, 120_000);

test("a connection that never shakes hands is closed after a while", async () => {
  const [cert, key] = await Promise.all([readFile(pair.certFile, "utf8"), readFile(pair.keyFile, "utf8")]);
  const made = await startMadeUp({ tls: { cert, key }, grpcIdleMs: 100 });
  const silent = connect(made.grpc.port, "127.0.0.1");
  await new Promise((done) => silent.resume().on("close", done));
  await made.stop();
});

describe("what cannot be used is told by its setting, at the start", () => {
  const refusal = (settings: Partial<Config>) =>
    startTestServer({ engine: "libsql", settings }).then(
      async (server) => {
        await server.stop();
        return "started";
      },
      (error) => `${error.name}: ${error.message}`,
    );

  test("missing, malformed and foreign files", async () => {
    const nowhere = join(authority.folder, "nowhere.pem");
    const other = await authority.issue("other", ["DNS:other"]);
    const junk = join(authority.folder, "junk.pem");
    await writeFile(junk, "hush");
    expect(await refusal({ ...settingsOf(pair), tlsCertFile: nowhere })).toBe(
      `StartFailure: SVC_TLS_CERT_FILE: ${nowhere} cannot be read (ENOENT)`,
    );
    expect(await refusal({ ...settingsOf(pair), tlsCertFile: junk })).toBe(
      `StartFailure: SVC_TLS_CERT_FILE: ${junk} holds no certificate in PEM form`,
    );
    expect(await refusal({ ...settingsOf(pair), tlsKeyFile: junk })).toBe(
      `StartFailure: SVC_TLS_KEY_FILE: ${junk} holds no private key in PEM form without a password`,
    );
    expect(await refusal({ ...settingsOf(pair), tlsKeyFile: other.keyFile })).toBe(
      `StartFailure: SVC_TLS_KEY_FILE: ${other.keyFile} is not the key of SVC_TLS_CERT_FILE ${pair.certFile}`,
    );
    expect(await refusal({ databaseTlsCaFile: junk })).toContain("SVC_DATABASE_TLS_CA_FILE");
    expect(await refusal({ natsTlsCaFile: nowhere })).toContain("NATS_TLS_CA_FILE");
    expect(await refusal({ natsCredsFile: nowhere })).toContain("NATS_CREDS_FILE");
  });
});
