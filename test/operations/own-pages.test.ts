import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:http2";
import { everyWay, go } from "../support/every-route.ts";
import { isNight } from "../support/night.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { bearerProtocol } from "../support/sockets.ts";

const evil = "http://evil.example";

/** What a request says of where it comes from. */
interface Page {
  name: string;
  headers: Record<string, string>;
  /** Whether a cookie may speak for it where something is read, and where something is changed. */
  reads: boolean;
  writes: boolean;
}

const pages = (own: string): Page[] => {
  const host = new URL(own).host;
  const port = new URL(own).port;
  const page = (name: string, headers: Record<string, string>, reads: boolean, writes: boolean): Page => ({
    name,
    headers,
    reads,
    writes,
  });
  return [
    page("no browser", {}, true, true),
    page("own page, old browser", { origin: own }, true, true),
    page("own page over TLS at a proxy", { origin: `https://${host}` }, true, true),
    page("own page", { origin: own, "sec-fetch-site": "same-origin" }, true, true),
    page("own page's GET", { "sec-fetch-site": "same-origin" }, true, true),
    page("typed", { "sec-fetch-site": "none" }, true, false),
    page("another site", { origin: evil, "sec-fetch-site": "cross-site" }, false, false),
    page("a link of another site", { "sec-fetch-site": "cross-site" }, false, false),
    page("a sibling", { origin: `http://localhost:${port}`, "sec-fetch-site": "same-site" }, false, false),
    page("a link of a sibling", { "sec-fetch-site": "same-site" }, false, false),
    page("another port, old browser", { origin: "http://127.0.0.1:1" }, false, false),
    page("another site, old browser", { origin: evil }, false, false),
    page("a sandboxed frame", { origin: "null" }, false, false),
    page("nonsense", { origin: host }, false, false),
    page("a new word", { "sec-fetch-site": "sometimes" }, false, false),
  ];
};

// What speaks for a request is settled before any store is asked: by day on one engine.
const asked = engines.filter((engine) => isNight || engine === "libsql");

describe.each(asked)("the credential that a request uses, on %s", (engine) => {
  let server: TestServer;
  let cookie = "";
  let key = "";
  beforeAll(async () => {
    server = await startTestServer({ engine });
    const login = { email: "page@example.test", password: "correct horse battery" };
    await server.api("/api/v1/users", { body: { ...login, roles: ["admin"] } });
    const { headers } = await server.api("/api/v1/auth/login", { key: null, body: login });
    cookie = headers.get("set-cookie")!.split(";")[0]!;
    key = server.adminKey!;
  });
  afterAll(() => server.stop());

  /** Other places of a credential beside the cookie: none is usable. */
  const unusable: [string, { headers?: Record<string, string>; query?: string }][] = [
    ["nothing", {}],
    ["an empty token", { query: "?token=" }],
    ["an empty token twice", { query: "?token=&token=" }],
    ["Basic", { headers: { authorization: "Basic eDp5" } }],
    ["an empty Authorization", { headers: { authorization: "" } }],
    ["Bearer alone", { headers: { authorization: "Bearer " } }],
    ["a parameter alike", { query: "?mytoken=x" }],
  ];
  const ways = [
    { name: "events.list", method: "GET", path: "/api/v1/events", reads: true },
    { name: "pubsub.subscribe", method: "GET", path: "/ws", reads: true },
    { name: "workers.poll", method: "GET", path: "/api/v1/workers/nobody/jobs", reads: false },
    { name: "events.emit", method: "POST", path: "/svc.v1.SvcService/Emit", reads: false },
    { name: "functions.list", method: "POST", path: "/svc.v1.SvcService/ListFunctions", reads: true },
    { name: "keys.create", method: "POST", path: "/api/v1/apikeys", reads: false },
  ] as const;

  const ask = async (
    way: (typeof ways)[number],
    visitor: { headers: Record<string, string>; query?: string },
  ) => {
    const found = everyWay(server.running.registry).find(
      ({ operation, method, path }) =>
        operation.name === way.name &&
        method === way.method &&
        new RegExp(`^${path.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(way.path),
    );
    const input = way.name === "events.emit" ? { event: "a.b" } : {};
    return (await go(server.url, found!, visitor, { param: () => "nobody", body: input })).status;
  };

  test("a cookie speaks for own pages only, whatever else stands in the request", async () => {
    const wrong: string[] = [];
    let combinations = 0;
    for (const page of pages(server.url))
      for (const [what, { headers = {}, query }] of unusable)
        for (const way of ways) {
          combinations++;
          const status = await ask(way, {
            headers: { cookie, ...headers, ...page.headers },
            ...(query !== undefined && { query }),
          });
          // What changes something gets no cookie by a GET, from whichever page.
          const isGood =
            way.method === "GET" ? way.reads && page.reads : way.reads ? page.writes : page.writes;
          if ((status !== 403) !== isGood)
            wrong.push(`${page.name}, ${what}: ${way.method} ${way.path} answered ${status}`);
          if (status === 401) wrong.push(`${page.name}, ${what}: the cookie was not looked at`);
        }
    expect(wrong).toEqual([]);
    expect(combinations).toBe(15 * 7 * 6);
  }, 120_000);

  test("a key speaks for whoever has it, in each of its places, and a wrong one is never made good by the cookie", async () => {
    const places = (text: string) => [
      { headers: { authorization: `Bearer ${text}` } },
      { headers: {}, query: `?token=${text}` },
    ];
    const socketPlaces = (text: string) => ({ "sec-websocket-protocol": `svc.v1, ${bearerProtocol(text)}` });
    const wrong: string[] = [];
    for (const page of pages(server.url))
      for (const way of ways) {
        for (const [text, expected] of [
          [key, false],
          [`ifkey_${"0".repeat(32)}`, true],
        ] as const) {
          const visitors = places(text).map((place) => ({
            ...place,
            headers: { cookie, ...page.headers, ...place.headers },
          }));
          if (way.path === "/ws")
            visitors.push({ headers: { cookie, ...page.headers, ...socketPlaces(text) } as never });
          for (const visitor of visitors) {
            const status = await ask(way, visitor);
            if ((status === 401) !== expected || status === 403)
              wrong.push(`${page.name}: ${way.method} ${way.path} answered ${status}`);
          }
        }
        const malformed = {
          cookie,
          "sec-websocket-protocol": "svc.v1, svc.auth.bearer.%%%",
          ...page.headers,
        };
        if (way.path === "/ws" && (await ask(way, { headers: malformed })) !== 401)
          wrong.push(`${page.name}: a malformed subprotocol let the cookie speak`);
      }
    expect(wrong).toEqual([]);
  }, 120_000);

  test("no operation that changes anything can be asked by GET with a cookie", async () => {
    const gets = everyWay(server.running.registry).filter(
      ({ method, operation }) => method === "GET" && operation.reads !== true && operation.action !== null,
    );
    expect(gets.map(({ operation }) => operation.name)).toEqual(["workers.poll"]);
    for (const way of gets) expect((await go(server.url, way, { headers: { cookie } })).status).toBe(403);
  });
});

describe("--dev", () => {
  let server: TestServer;
  let port = "";
  beforeAll(async () => {
    server = await startTestServer({
      engine: "libsql",
      settings: { dev: true, pollHoldMs: 1, grpcPort: 0, metricsPort: 0 },
    });
    port = new URL(server.url).port;
  });
  afterAll(() => server.stop());

  const hosts = (): [string, boolean][] => [
    [`127.0.0.1:${port}`, true],
    [`localhost:${port}`, true],
    [`LOCALHOST:${port}`, true],
    [`[::1]:${port}`, true],
    ["127.8.9.10", true],
    ["localhost", true],
    [`evil.example:${port}`, false],
    [`localhost.evil.example:${port}`, false],
    [`evil.localhost:${port}`, false],
    [`127.0.0.1.nip.io:${port}`, false],
    ["169.254.169.254", false],
    ["0.0.0.0", false],
    ["[::]", false],
    ["localhost@evil.example", false],
    ["evil.example#localhost", false],
  ];
  const askers: [Record<string, string>, boolean][] = [
    [{}, true],
    [{ origin: "http://localhost:3000" }, true],
    [{ origin: "https://127.0.0.1" }, true],
    [{ origin: "http://[::1]:3000", "sec-fetch-site": "cross-site" }, true],
    [{ "sec-fetch-site": "same-origin" }, true],
    [{ "sec-fetch-site": "none" }, true],
    [{ "sec-fetch-site": "cross-site" }, false],
    [{ origin: evil }, false],
    [{ origin: "null" }, false],
    [{ origin: "http://localhost.evil.example" }, false],
    [{ origin: "http://localhost@evil.example" }, false],
    [{ origin: "http://evil.example", "sec-fetch-site": "same-origin" }, false],
    [{ origin: "file://localhost" }, false],
  ];

  test("every way in answers loopback Hosts and Origins only", async () => {
    const wrong: string[] = [];
    const ways = everyWay(server.running.registry);
    for (const [host, hostGood] of hosts())
      for (const [headers, askerGood] of askers) {
        const isGood = hostGood && askerGood;
        // All ways for a few, one of each kind for the others.
        const some =
          host.startsWith("evil") || host.startsWith("127.0.0.1:")
            ? ways
            : ways.filter((_, at) => at % 29 === 0);
        for (const way of isGood ? ways.filter(({ path }) => path === "/ws") : some) {
          if (way.operation.name === "pubsub.subscribe" && way.protocol === "stream" && isGood) continue;
          const { status, headers: answered } = await go(server.url, way, { headers: { host, ...headers } });
          if ((status === 403) === isGood)
            wrong.push(`${host} ${JSON.stringify(headers)}: ${way.method} ${way.path} ${status}`);
          if (!isGood && answered.has("access-control-allow-origin")) wrong.push(`${way.path} may be read`);
        }
      }
    expect(wrong.slice(0, 10)).toEqual([]);
  }, 120_000);

  test("preflights, pages and what is not there are refused to others too, in words", async () => {
    for (const [path, method] of [
      ["/svc.v1.SvcService/RegisterFunction", "OPTIONS"],
      ["/docs", "GET"],
      ["/metrics", "GET"],
      ["/nowhere", "GET"],
      ["/health", "GET"],
    ] as const)
      for (const headers of [{ origin: evil }, { host: "rebound.example" }]) {
        const answer = await fetch(`${server.url}${path}`, { method, headers });
        expect(answer.status).toBe(403);
        expect(answer.headers.get("access-control-allow-origin")).toBeNull();
        expect((await answer.json()).message).toStartWith("a --dev server answers this machine's own pages");
      }
    const own = await fetch(`${server.url}/svc.v1.SvcService/RegisterFunction`, {
      method: "OPTIONS",
      headers: { origin: "http://localhost:3000" },
    });
    expect([own.status, own.headers.get("access-control-allow-origin")]).toEqual([204, "*"]);
  });

  test("so does the port of gRPC", async () => {
    const { freePort } = await import("../support/process.ts");
    const with_ = await startTestServer({
      engine: "libsql",
      settings: { dev: true, grpcPort: await freePort() },
    });
    try {
      const ask = (authority: string, headers: Record<string, string> = {}) =>
        new Promise<unknown>((answered, failed) => {
          const session = connect(with_.running.grpcUrl!);
          const stream = session.request({
            ":method": "POST",
            ":path": "/svc.v1.SvcService/ListFunctions",
            ":authority": authority,
            "content-type": "application/grpc",
            te: "trailers",
            ...headers,
          });
          stream.on("response", (sent) => {
            answered(sent[":status"]);
            session.destroy();
          });
          stream.on("error", failed);
          stream.end(Buffer.from([0, 0, 0, 0, 0]));
        });
      expect(await ask("localhost:1")).toBe(200);
      expect(await ask("rebound.example")).toBe(403);
      expect(await ask("localhost:1", { origin: evil })).toBe(403);
    } finally {
      await with_.stop();
    }
  });
});
