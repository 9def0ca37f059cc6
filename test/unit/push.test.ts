import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { createSocket } from "node:dgram";
import { getServers, setServers } from "node:dns";
import { once } from "node:events";
import { zstdCompressSync } from "node:zlib";
import { openEndpointCaller, signatureOf } from "../../src/domain/engine/push/job-calls.ts";
import { addressGuard, parseNetwork } from "../../src/kit/addresses.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { TransportFailure } from "../../src/kit/outward-call.ts";
import { until } from "../support/until.ts";

describe("addresses that may be called", () => {
  const guard = addressGuard([]);
  for (const address of [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "168.63.129.16",
    "::ffff:168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fd00::1",
    "fe80::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "2002:7f00:1::",
    "::ffff:0:127.0.0.1",
    "64:ff9b:1:7f00:0:100:808:808",
    "fe80::1%eth0",
  ])
    test(`${address} may not`, () => expect(guard.allows(address)).toBe(false));
  for (const address of ["1.1.1.1", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
    test(`${address} may`, () => expect(guard.allows(address)).toBe(true));

  test("exceptions are networks, or all", () => {
    const some = addressGuard(["10.0.0.0/8", "::1"]);
    expect(some.allows("10.9.9.9")).toBe(true);
    expect(some.allows("::1")).toBe(true);
    expect(some.allows("127.0.0.1")).toBe(false);
    expect(addressGuard("all").allows("127.0.0.1")).toBe(true);
    for (const text of ["", "10.0.0.0/33", "host", "10.0.0.0/", "::/129", "1.2.3"])
      expect(parseNetwork(text)).toBeUndefined();
  });
});

test("one header satisfies both kinds of verifier", () => {
  const header = signatureOf("key", '{"a":1}', 1_700_000_000);
  const hmac = (text: string) => createHmac("sha256", "key").update(text).digest("hex");
  // The old one decodes hex up to whatever is none.
  const old = Buffer.from(header.slice("sha256=".length), "hex");
  expect(old.toString("hex")).toBe(hmac('{"a":1}'));
  const parts = new Map(header.split(",").map((part) => part.split("=", 2) as [string, string]));
  expect(parts.get("v1")).toBe(hmac(`${parts.get("t")}.{"a":1}`));
});

describe("calls", () => {
  const clock = systemClock();
  let server: ReturnType<typeof Bun.serve>;
  const asked: { host: string | null; path: string; encoding: string | null }[] = [];
  beforeAll(() => {
    server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      async fetch(request) {
        const { pathname } = new URL(request.url);
        const encoding = request.headers.get("accept-encoding");
        asked.push({ host: request.headers.get("host"), path: pathname, encoding });
        if (pathname === "/away") return Response.redirect("http://127.0.0.1:1/", 302);
        if (pathname === "/huge") return new Response("x".repeat(5_000));
        if (pathname === "/bomb")
          return new Response(zstdCompressSync(Buffer.alloc(64 << 20)), {
            headers: { "Content-Encoding": "zstd" },
          });
        if (pathname === "/text") return new Response("not json");
        if (pathname === "/slow") await clock.sleep(60_000, request.signal);
        return Response.json({ ok: true });
      },
    });
  });
  afterAll(() => server.stop(true));

  const call = (
    path: string,
    options: {
      allowed?: string[];
      resolve?: () => Promise<string[]>;
      host?: string;
      timeoutMs?: number;
    } = {},
  ) =>
    openEndpointCaller({
      clock,
      guard: addressGuard(options.allowed ?? ["127.0.0.0/8"]),
      answerBytesMax: 1_000,
      ...(options.resolve && { resolve: options.resolve }),
    })({
      url: `http://${options.host ?? "127.0.0.1"}:${server.port}${path}`,
      body: "{}",
      signingKey: undefined,
      timeoutMs: options.timeoutMs ?? 20_000,
    });
  const failure = (promise: Promise<unknown>) =>
    promise.then(
      () => "answered",
      (error: unknown) => (error instanceof TransportFailure ? error.message : String(error)),
    );

  test("go to the address that was checked, under the name that was written", async () => {
    const names = ["127.0.0.1", "10.0.0.1"];
    const resolve = async () => [names.shift()!];
    expect(await call("/x", { host: "svc-endpoint.test", resolve })).toEqual({ ok: true });
    expect(asked.at(-1)).toMatchObject({ host: `svc-endpoint.test:${server.port}`, path: "/x" });
    // The name leads elsewhere now: it is checked again, and refused.
    expect(await failure(call("/x", { host: "svc-endpoint.test", resolve }))).toContain("must not be called");
  });

  test("are refused when any of the name's addresses is private", async () => {
    const resolve = async () => ["127.0.0.1", "169.254.169.254"];
    const before = asked.length;
    expect(await failure(call("/x", { host: "mixed.test", resolve }))).toContain("must not be called");
    expect(await failure(call("/x", { allowed: [] }))).toContain("must not be called");
    expect(asked.length).toBe(before);
  });

  test("follow no redirect, and bound size and time", async () => {
    expect(await failure(call("/away"))).toBe("the endpoint answered 302");
    expect(await failure(call("/huge"))).toBe("the answer is larger than 1000 bytes");
    expect(await failure(call("/text"))).toBe("the endpoint's answer is not valid JSON");
    expect(await failure(call("/slow", { timeoutMs: 300 }))).toBe("no answer within 300 ms");
    const gone = openEndpointCaller({ clock, guard: addressGuard("all"), answerBytesMax: 10 });
    const nobody = gone({ url: "http://127.0.0.1:1/", body: "{}", signingKey: undefined, timeoutMs: 20_000 });
    expect(await failure(nobody)).toStartWith("the endpoint cannot be reached");
    const unknown = gone({
      url: "http://nowhere.invalid/",
      body: "{}",
      signingKey: undefined,
      // Name servers that are away are asked for long.
      timeoutMs: 60_000,
    });
    expect(await failure(unknown)).toBe("the host's name cannot be resolved");
  }, 90_000);

  test("unpack nothing, and ask for nothing that is packed", async () => {
    expect(await failure(call("/bomb"))).toBe("the answer is compressed (zstd)");
    expect(asked.at(-1)!.encoding).toBe("identity");
  });

  test("ask name servers without a thread each, which files and passwords would wait for", async () => {
    const silent = createSocket("udp4");
    const questions: string[] = [];
    silent.on("message", (message) => questions.push(message.toString("latin1")));
    silent.bind(0, "127.0.0.1");
    await once(silent, "listening");
    const before = getServers();
    setServers([`127.0.0.1:${silent.address().port}`]);
    try {
      const hosts = Array.from({ length: 40 }, (_, n) => `silent${n}x.test`);
      const calls = hosts.map((host) => failure(call("/x", { host, timeoutMs: 2_000 })));
      await until(
        () => hosts.every((host) => questions.some((one) => one.includes(host.split(".")[0]!))) || undefined,
        { about: "all names are asked for" },
      );
      expect(new Set(await Promise.all(calls))).toEqual(new Set(["no answer within 2000 ms"]));
    } finally {
      setServers(before);
      silent.close();
    }
  });

  test("do not wait longer for a name server than for an answer", async () => {
    const resolve = () => new Promise<string[]>(() => {});
    const silent = call("/x", { host: "silent.test", resolve, timeoutMs: 300 });
    expect(await failure(silent)).toBe("no answer within 300 ms");
  });

  test("go to the address itself, whatever proxy this machine's environment names", async () => {
    const before = process.env.HTTP_PROXY;
    // Nobody listens there.
    process.env.HTTP_PROXY = "http://127.0.0.1:1";
    try {
      expect(await call("/direct")).toEqual({ ok: true });
    } finally {
      if (before === undefined) delete process.env.HTTP_PROXY;
      else process.env.HTTP_PROXY = before;
    }
  });
});
