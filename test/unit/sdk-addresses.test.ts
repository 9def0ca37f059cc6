import { afterEach, expect, test } from "bun:test";
import { createClient, createFunction, createWorker, serve } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";

interface Server {
  url: string;
  /** `GET /ready`, with `+key` where a key came along. */
  asked: string[];
  /** Its answer to all but `/ready`. */
  answer: () => Response;
  isReady: boolean;
  /** Its answer to `/ready` while it is. */
  page: string;
  installation: string | undefined;
  stop(): Promise<void>;
}

const open = new Set<{ stop(): Promise<void> }>();
afterEach(async () => {
  for (const one of [...open]) await one.stop();
});

function startServer(installation: string | undefined, port = 0): Server {
  const own: Server = {
    url: "",
    asked: [],
    answer: () => Response.json({ id: "run_1", status: "RUN_STATUS_RUNNING" }),
    isReady: true,
    page: '{"status":"ready"}',
    installation,
    async stop() {
      open.delete(own);
      await listening.stop(true);
    },
  };
  const listening = Bun.serve({
    hostname: "127.0.0.1",
    port,
    fetch(request) {
      const { pathname } = new URL(request.url);
      const key = request.headers.has("authorization") ? "+key" : "";
      own.asked.push(`${request.method} ${pathname.split("/").at(-1)}${key}`);
      const isProbe = pathname === "/ready";
      const answer = isProbe
        ? own.isReady
          ? new Response(own.page)
          : new Response("draining", { status: 503 })
        : own.answer();
      if (own.installation !== undefined) answer.headers.set("X-Svc-Installation", own.installation);
      return answer;
    },
  });
  own.url = `http://127.0.0.1:${listening.port}`;
  open.add(own);
  return own;
}

const portOf = ({ url }: Server) => Number(new URL(url).port);
const clientOf = (...servers: Server[]) =>
  createClient({ url: servers.map(({ url }) => url), apiKey: "ifkey_test" });
const refused = (code: string) => () => Response.json({ code, message: code }, { status: 503 });

test("one URL is asked nothing but the calls, in a list too", async () => {
  const only = startServer("ins_a");
  for (const url of [only.url, [only.url]]) {
    const client = createClient({ url, apiKey: "ifkey_test" });
    await client.getRun("run_1");
    await client.transport.headers();
    client.transport.lost?.(only.url);
    await client.getRun("run_1");
  }
  expect(only.asked).toEqual(Array(4).fill("POST GetRun+key"));
});

test("of several, the one that answers is kept; what goes away is left for the next, and the last for the first", async () => {
  const [a, b] = [startServer("ins_a"), startServer("ins_a")];
  const client = clientOf(a, b);
  await Promise.all([client.getRun("run_1"), client.getRun("run_1")]);
  expect([a.asked, b.asked]).toEqual([["GET ready", "POST GetRun+key", "POST GetRun+key"], []]);
  await a.stop();
  await client.getRun("run_1");
  await client.getRun("run_1");
  expect(b.asked).toEqual(["GET ready", "POST GetRun+key", "POST GetRun+key"]);
  expect(client.transport.url).toBe(b.url);
  const again = startServer("ins_a", portOf(a));
  await b.stop();
  await client.getRun("run_1");
  expect(again.asked).toEqual(["GET ready", "POST GetRun+key"]);
  expect(client.consistent().transport.url).toBe(again.url);
});

test("a call that must not happen twice goes on at the next where it was not sent, and at none where it may have been", async () => {
  const [a, b] = [startServer("ins_a"), startServer("ins_a")];
  const client = clientOf(a, b);
  await client.getRun("run_1");
  a.answer = () => Response.json({ code: "internal", message: "lost" }, { status: 502 });
  await expect(client.emit("n", {})).rejects.toMatchObject({ status: 502 });
  expect(a.asked.at(-1)).toBe("POST Emit+key");
  expect(b.asked).toEqual([]);
  b.answer = () => Response.json({ eventId: "evt_1" });
  expect(await client.emit("n", {})).toMatchObject({ eventId: "evt_1" });
  await b.stop();
  a.answer = b.answer;
  expect(await client.emit("n", {})).toMatchObject({ eventId: "evt_1" });
});

test("a node that drains answers 503, to the call or when it is asked first: the next one is called", async () => {
  const [a, b, c] = [startServer("ins_a"), startServer("ins_a"), startServer("ins_a")];
  const client = clientOf(a, b, c);
  a.answer = refused("unavailable");
  b.isReady = false;
  await client.getRun("run_1");
  expect(a.asked).toEqual(["GET ready", "POST GetRun+key"]);
  expect(b.asked).toEqual(["GET ready"]);
  expect(c.asked).toEqual(["GET ready", "POST GetRun+key"]);
});

test("a stream that has ended has its server asked first, which is kept while it is there", async () => {
  const [a, b] = [startServer("ins_a"), startServer("ins_a")];
  const { transport } = clientOf(a, b);
  await transport.headers();
  transport.lost?.(a.url);
  transport.lost?.(a.url);
  await transport.headers();
  expect([transport.url, a.asked.length, b.asked.length]).toEqual([a.url, 2, 0]);
  a.isReady = false;
  transport.lost?.(a.url);
  await transport.headers();
  expect(transport.url).toBe(b.url);
  // What is said late of a server that was left says nothing of this one.
  transport.lost?.(a.url);
  await transport.headers();
  expect(b.asked).toEqual(["GET ready"]);
});

test("another installation never sees the key, and is named when no other server is left", async () => {
  const [a, other] = [startServer("ins_a"), startServer("ins_other")];
  const client = clientOf(a, other);
  await client.getRun("run_1");
  await a.stop();
  const failed = client.getRun("run_1");
  await expect(failed).rejects.toMatchObject({ code: "other_installation", retryable: true, unsent: true });
  for (const word of [a.url, other.url, "ins_a", "ins_other"]) await expect(failed).rejects.toThrow(word);
  await expect(client.getRun("run_1")).rejects.toMatchObject({ code: "other_installation" });
  // Once is enough.
  expect(other.asked).toEqual(["GET ready"]);
  startServer("ins_a", portOf(a));
  expect(await client.getRun("run_1")).toMatchObject({ id: "run_1" });
});

test("a server that names no installation is refused beside one that does, until it names it", async () => {
  const [a, older] = [startServer("ins_a"), startServer(undefined)];
  const client = clientOf(a, older);
  await client.getRun("run_1");
  await a.stop();
  await expect(client.getRun("run_1")).rejects.toMatchObject({ code: "other_installation", retryable: true });
  expect(new Set(older.asked)).toEqual(new Set(["GET ready"]));
  await expect(client.getRun("run_1")).rejects.toThrow(`${a.url} does not answer`);
  older.installation = "ins_a";
  expect(await client.getRun("run_1")).toMatchObject({ id: "run_1" });
  expect(older.asked.at(-1)).toBe("POST GetRun+key");
});

test("where none is ready, as without a bus, calls go on at one that answers", async () => {
  const [a, b] = [startServer("ins_a"), startServer("ins_a")];
  const client = clientOf(a, b);
  await client.getRun("run_1");
  a.isReady = false;
  b.isReady = false;
  client.transport.lost?.(a.url);
  await client.getRun("run_1");
  expect([a.asked.at(-1), b.asked.at(-1)]).toEqual(["POST GetRun+key", "GET ready"]);
  const later = clientOf(a, b);
  expect(await later.getRun("run_1")).toMatchObject({ id: "run_1" });
});

test("whoever is no server of svc gets no key, also as the first, or when the address becomes its", async () => {
  const [page, a] = [startServer(undefined), startServer("ins_a")];
  page.page = "<h1>Parked</h1>";
  const client = clientOf(page, a);
  await client.getRun("run_1");
  expect(page.asked).toEqual(["GET ready"]);
  a.installation = undefined;
  a.answer = () => new Response("<h1>Log in</h1>", { status: 404 });
  await expect(client.getRun("run_1")).rejects.toMatchObject({ status: 404 });
  const asked = a.asked.length;
  await expect(client.getRun("run_1")).rejects.toMatchObject({ code: "other_installation", retryable: true });
  expect(a.asked.slice(asked)).not.toContain("POST GetRun+key");
});

test("servers of before, which name none, take turns as well", async () => {
  const [a, b] = [startServer(undefined), startServer(undefined)];
  const client = clientOf(a, b);
  await client.getRun("run_1");
  await a.stop();
  await client.getRun("run_1");
  expect(b.asked).toEqual(["GET ready", "POST GetRun+key"]);
});

test("an address at which another installation answers all at once gets the key no second time", async () => {
  const [a, b] = [startServer("ins_a"), startServer("ins_a")];
  const client = clientOf(a, b);
  await client.getRun("run_1");
  a.installation = "ins_other";
  await expect(client.emit("n", {})).rejects.toMatchObject({ code: "other_installation", unsent: false });
  const asked = a.asked.length;
  await client.getRun("run_1");
  await b.stop();
  await expect(client.getRun("run_1")).rejects.toThrow("ins_other");
  expect(a.asked).toHaveLength(asked);
});

test("all that are away are named, without passwords; a call waits no longer than it may", async () => {
  const silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const url = [`http://127.0.0.1:${silent.port}`, "http://user:secret@127.0.0.1:1"];
  const client = createClient({ url, timeoutMs: 30 });
  await expect(client.getRun("run_1")).rejects.toMatchObject({ code: "timeout", unsent: true });
  silent.stop(true);
  const patient = createClient({ url });
  const failed = patient.getRun("run_1");
  await expect(failed).rejects.toMatchObject({ code: "unreachable", retryable: true, unsent: true });
  await expect(failed).rejects.toThrow(`${url[0]} does not answer`);
  await expect(failed).rejects.toThrow("http://…@127.0.0.1:1 does not answer");
});

test("a worker registers and polls at the next server", async () => {
  const [a, b] = [startServer("ins_a"), startServer("ins_a")];
  const answer = () => Response.json({ function: { id: "f" }, jobs: [] });
  a.answer = answer;
  b.answer = answer;
  const one = createFunction({ id: "f", event: "n" }, async () => {});
  const worker = createWorker({ url: [a.url, b.url], apiKey: "k", functions: [one], handleSignals: false });
  await worker.start();
  const polls = ({ asked }: Server) => asked.some((line) => line === "POST exchange+key");
  await until(() => polls(a), { about: "a poll" });
  await a.stop();
  await until(() => polls(b), { about: "a poll of the next server" });
  worker.stop();
});

test("a list that names no servers, one twice or too many is refused, in a variable too", () => {
  const lists: [string[], string][] = [
    [[], "url: must name 1 to 16 servers, not 0"],
    [Array.from({ length: 17 }, (_, n) => `http://s${n}`), "url: must name 1 to 16 servers, not 17"],
    [["http://a", "ftp://u:secret@b"], "url[1]: must be http://"],
    [["http://a", "http://A:80/"], "url[1]: http://A:80 stands in the list already"],
  ];
  const one = createFunction({ id: "f", event: "n" }, async () => {});
  for (const [url, text] of lists)
    for (const make of [
      () => createClient({ url }),
      () => createWorker({ url, functions: [one] }),
      () => serve({ url, functions: [one], signingKey: null }),
    ]) {
      expect(make).toThrow(TypeError);
      expect(make).toThrow(text);
      expect(make).not.toThrow("secret");
    }
  const kept = process.env.SVC_SERVER_URL;
  try {
    process.env.SVC_SERVER_URL = "http://a/, http://b";
    expect(createClient().transport.url).toBe("http://a");
    process.env.SVC_SERVER_URL = "http://a,ftp://b";
    expect(() => createClient()).toThrow("url[1]: must be");
    process.env.SVC_SERVER_URL = "http://user:pa,ss@a";
    expect(createClient().transport.url).toBe("http://user:pa,ss@a");
  } finally {
    if (kept === undefined) delete process.env.SVC_SERVER_URL;
    else process.env.SVC_SERVER_URL = kept;
  }
});
