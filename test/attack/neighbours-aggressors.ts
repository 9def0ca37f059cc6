import { connect } from "node:net";
import { systemClock } from "../../src/kit/clock.ts";
import { type Answer, type Caller, callerOf } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";

/** Whom an aggressor comes as; all but the last in an org that is not the victim's. */
export type Right = "anonymous" | "viewer" | "developer" | "worker" | "admin of another org";

export interface Place {
  url: string;
  keys: { viewer: string; developer: string; admin: string };
  /** Instead of what the aggressor does at once by itself. */
  atOnce?: number | undefined;
}

export interface Aggressor {
  right: Right;
  resource: string;
  /** In the short form too. */
  short?: boolean;
  /** Prepares, and answers what it then does again and again, so many at a time. */
  begin(place: Place): Promise<{ atOnce: number; again: () => Promise<unknown> }>;
}

const heavy = (mark: number | string) =>
  `data.l.exists(x, x.b.contains('zzz${mark}') || x.b.startsWith('q') || x.b.endsWith('w') || x.a > 1000000)`;
const heavyData = { l: Array.from({ length: 9_000 }, (_, a) => ({ a, b: `item ${a}` })) };
const clock = systemClock();
const pause = clock.sleep;
let marks = 0;

function speakers({ url, keys }: Place) {
  const as = (key: string): Caller => {
    const caller = callerOf(
      () => url,
      () => key,
    );
    // An aggressor whom nobody knows attacks nothing.
    const known = async (answer: Promise<Answer>): Promise<Answer> => {
      const { status } = await answer;
      if (status === 401) process.exit(1);
      return answer;
    };
    return {
      api: (path, options) =>
        options?.key === null ? caller.api(path, options) : known(caller.api(path, options)),
      rpc: (...asked) => known(caller.rpc(...asked)),
    };
  };
  const developer = as(keys.developer);
  const emit = (event: string, data: unknown = heavyData) =>
    developer.rpc("SvcService", "Emit", { event, data });
  const register = (id: string, body: object) =>
    developer.rpc("SvcService", "RegisterFunction", { id, name: id, ...body });
  return { viewer: as(keys.viewer), developer, admin: as(keys.admin), emit, register };
}

function addressOf(url: string): { port: number; host: string } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

/** A socket that subscribes and then never reads. */
function openUnread({ url, keys }: Place, pattern: string): Promise<void> {
  const frame = Buffer.from(JSON.stringify({ type: "subscribe", subscription: { pattern } }));
  const line = connect(addressOf(url));
  line.on("error", () => {});
  line.write(
    `GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n` +
      `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer ${keys.viewer}\r\n\r\n`,
  );
  return new Promise((ready) => {
    line.once("data", () => {
      line.write(Buffer.concat([Buffer.from([0x81, 0x80 | frame.length, 0, 0, 0, 0]), frame]));
      clock.after(50, () => {
        line.pause();
        ready();
      });
    });
  });
}

/** Each option of flow control, at what makes it work most. */
const flowOptions: Record<string, { options: object; short?: boolean }> = {
  priority: { options: { priority: "data.rank" } },
  throttle: { options: { throttle: { limit: 1, periodMs: 60_000, key: "data.n" } } },
  "a rate limit": { options: { rateLimit: { limit: 1_000_000, periodMs: 604_800_000, key: "data.few" } } },
  idempotency: { options: { idempotency: { key: "data.n" } } },
  "a singleton": { options: { singleton: { mode: "cancel", key: "data.few" } } },
  "times to begin": { options: { startWithinMs: 1_000 } },
  batches: { options: { batch: { size: 2, timeoutMs: 1_000, key: "data.few" } }, short: true },
};

const flowAggressors = Object.entries(flowOptions).map(
  ([option, { options, short }]): Aggressor => ({
    ...{ right: "developer", resource: option, ...(short && { short }) },
    async begin(place) {
      const { emit, register } = speakers(place);
      for (let fn = 0; fn < 10; fn++)
        await register(`n-flow-${fn}`, { triggers: [{ event: "n.flow" }], ...options });
      return {
        atOnce: 32,
        again: () => {
          const n = marks++;
          return emit("n.flow", { n, few: n % 50, rank: (n % 1_200) - 600 });
        },
      };
    },
  }),
);

export const aggressors: readonly Aggressor[] = [
  {
    ...{ right: "anonymous", resource: "unfinished bodies", short: true },
    async begin({ url }) {
      const size = 4 * 1024 * 1024;
      const head = `POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${size}\r\n\r\n`;
      const body = Buffer.alloc(size - 10, " ");
      const again = () =>
        new Promise<void>((done) => {
          const line = connect(addressOf(url));
          line.on("error", () => done());
          line.on("close", () => done());
          line.write(head);
          line.write(body);
        });
      return { atOnce: 100, again };
    },
  },
  {
    ...{ right: "anonymous", resource: "guesses at passwords", short: true },
    async begin(place) {
      const { viewer } = speakers(place);
      const again = () =>
        viewer.api("/api/v1/auth/login", {
          ...{ key: null, body: { email: `guess-${marks++}@example.com`, password: "not this one" } },
        });
      return { atOnce: 32, again };
    },
  },
  {
    ...{ right: "viewer", resource: "filters of replays", short: true },
    async begin(place) {
      const { emit } = speakers(place);
      for (let number = 0; number < 40; number++) await emit("n.replayed");
      const again = async () => {
        const socket = await openSocket(place.url, { key: place.keys.viewer });
        await socket.subscribe("n.replayed", { replay: 1_000, filter: heavy(marks++) });
        await socket.wait("subscription_error");
        socket.close();
      };
      return { atOnce: 8, again };
    },
  },
  {
    ...{ right: "viewer", resource: "filters of subscriptions", short: true },
    async begin(place) {
      const { emit } = speakers(place);
      const again = async () => {
        const socket = await openSocket(place.url, { key: place.keys.viewer });
        for (let number = 0; number < 80; number++)
          await socket.subscribe("n.filtered", { filter: heavy(marks++) });
        for (let number = 0; number < 5; number++) await emit("n.filtered");
        socket.close();
      };
      return { atOnce: 2, again };
    },
  },
  {
    ...{ right: "viewer", resource: "sockets that do not read", short: true },
    async begin(place) {
      const { emit } = speakers(place);
      await Promise.all(Array.from({ length: 40 }, () => openUnread(place, "n.unread")));
      const large = "x".repeat(1_900_000);
      let sent = 0;
      return { atOnce: 1, again: async () => (sent++ < 8 ? emit("n.unread", large) : pause(50)) };
    },
  },
  {
    ...{ right: "viewer", resource: "lists with wide filters" },
    async begin(place) {
      const { viewer, emit } = speakers(place);
      for (let number = 0; number < 200; number++) await emit(`n.listed.${number}`, { number });
      return { atOnce: 16, again: () => viewer.api("/api/v1/events?name=listed&limit=200") };
    },
  },
  {
    ...{ right: "viewer", resource: "subscriptions without number" },
    async begin(place) {
      const again = async () => {
        const socket = await openSocket(place.url, { key: place.keys.viewer });
        for (let number = 0; number < 100; number++) await socket.subscribe(`n.${marks++}.>`);
        await pause(500);
        socket.close();
      };
      return { atOnce: 10, again };
    },
  },
  {
    ...{ right: "developer", resource: "triggers", short: true },
    async begin(place) {
      const { emit, register } = speakers(place);
      for (let fn = 0; fn < 4; fn++)
        await register(`n-heavy-${fn}`, {
          triggers: Array.from({ length: 50 }, () => ({ event: "n.triggered", expression: heavy(marks++) })),
        });
      return { atOnce: 8, again: () => emit("n.triggered") };
    },
  },
  {
    ...{ right: "developer", resource: "registrations" },
    async begin(place) {
      const { register } = speakers(place);
      const again = () =>
        register(`n-new-${marks++ % 50}`, {
          triggers: Array.from({ length: 50 }, () => ({
            ...{ event: `n.${marks++}`, expression: heavy(marks) },
          })),
        });
      return { atOnce: 4, again };
    },
  },
  {
    ...{ right: "developer", resource: "invokes" },
    async begin(place) {
      const { developer, register } = speakers(place);
      await register("n-invoked", {});
      const again = () =>
        developer.rpc("SvcService", "InvokeFunction", { functionId: "n-invoked", data: {} });
      return { atOnce: 32, again };
    },
  },
  {
    ...{ right: "developer", resource: "debounces" },
    async begin(place) {
      const { emit, register } = speakers(place);
      await register("n-debounced", {
        ...{ triggers: [{ event: "n.debounced" }], debounce: { periodMs: 200, key: "data.n" } },
      });
      return { atOnce: 32, again: () => emit("n.debounced", { n: marks++ }) };
    },
  },
  {
    ...{ right: "developer", resource: "publishes" },
    async begin(place) {
      const { developer } = speakers(place);
      const data = "x".repeat(1_000_000);
      return {
        atOnce: 8,
        again: () => developer.rpc("PubSubService", "Publish", { topic: "n.large", data }),
      };
    },
  },
  {
    ...{ right: "developer", resource: "filters of groups" },
    async begin(place) {
      const { emit } = speakers(place);
      const socket = await openSocket(place.url, { key: place.keys.developer });
      for (let number = 0; number < 20; number++)
        await socket.subscribe("n.grouped", { consumerGroup: `g${number}`, filter: heavy(number) });
      return { atOnce: 2, again: () => emit("n.grouped") };
    },
  },
  {
    ...{ right: "developer", resource: "cron slots" },
    async begin(place) {
      const { register } = speakers(place);
      for (let fn = 0; fn < 20; fn++)
        await register(`n-cron-${fn}`, {
          triggers: Array.from({ length: 50 }, () => ({ cron: "* * * * * *" })),
        });
      return { atOnce: 1, again: () => pause(100) };
    },
  },
  {
    ...{ right: "worker", resource: "polls and reports" },
    async begin(place) {
      const { developer, register } = speakers(place);
      await register("n-polled", {});
      const again = async () => {
        const worker = `n-worker-${marks++ % 50}`;
        await developer.api(`/api/v1/workers/${worker}/register`, { body: { function_ids: ["n-polled"] } });
        await developer.api(`/api/v1/workers/${worker}/jobs?available=10`);
        await developer.api(`/api/v1/workers/${worker}/jobs/job_run_x_1`, {
          method: "PUT",
          body: { execution_seq: 1, lease_token: "x", status: "progress", steps: [] },
        });
      };
      return { atOnce: 50, again };
    },
  },
  ...flowAggressors,
  {
    ...{ right: "developer", resource: "delayed events" },
    async begin(place) {
      const { developer } = speakers(place);
      const again = () =>
        developer.rpc("SvcService", "Emit", { event: "n.delayed", data: {}, delayMs: 1_000 });
      return { atOnce: 32, again };
    },
  },
  {
    ...{ right: "admin of another org", resource: "a quota that is used up", short: true },
    async begin(place) {
      const { admin, emit, register } = speakers(place);
      const [{ id }] = (await admin.api("/api/v1/environments")).body;
      await register("n-metered", { triggers: [{ event: "n.metered" }] });
      const body = { concurrent_runs: 1_000, runs_per_minute: 5 };
      await admin.api(`/api/v1/environments/${id}/quotas`, { method: "PUT", body });
      return { atOnce: 32, again: () => emit("n.metered", {}) };
    },
  },
  {
    ...{ right: "admin of another org", resource: "policies with heavy conditions", short: true },
    async begin(place) {
      const { admin, developer } = speakers(place);
      const condition = `${Array.from({ length: 40 }, () => "resource.id.matches('(a|b|c|d){1,20}x')").join(" || ")}`;
      for (let number = 0; number < 40; number++) {
        const { body } = await admin.api("/api/v1/policies", {
          ...{ body: { name: `n ${number}`, effect: "deny", actions: "*", resources: "*", condition } },
        });
        await admin.api("/api/v1/roles/role_developer/policies", { body: { policy_id: body.id } });
      }
      const again = () => developer.rpc("SvcService", "Emit", { event: "a".repeat(240) });
      return { atOnce: 16, again };
    },
  },
];

export const nameOf = ({ right, resource }: Aggressor): string => `${right} x ${resource}`;

/** As a program: begins, says so, and goes on until it is killed. */
if (import.meta.main) {
  process.on("unhandledRejection", () => process.exit(1));
  const { name, place } = JSON.parse(process.argv[2]!) as { name: string; place: Place };
  const { atOnce, again } = await aggressors.find((one) => nameOf(one) === name)!.begin(place);
  for (let one = 0; one < (place.atOnce ?? atOnce); one++)
    void (async () => {
      for (;;) await again().catch(() => pause(10));
    })();
  console.log("begun");
}
