import type { TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { openSubscriber } from "../support/stream-subscriber.ts";
import { transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";
import {
  as,
  boss,
  credentialMinters,
  impersonating,
  type Minter,
  only,
  type Product,
  post,
} from "./races-minters.ts";
import { type Stage, type Tag, tagsOf } from "./races-stage.ts";

/** Of a call that goes on: a viewer may make it too. */
const held = (tags: readonly Tag[]) => tags.filter((tag) => tag !== "roleBase");
const opened = async <T>(open: () => Promise<T>, product: (made: T) => Product) => {
  try {
    return { status: 200, product: product(await open()) };
  } catch {
    return { status: 401 };
  }
};
/** A policy ends the subscriptions that it denies, and leaves the socket open for others. */
const isHeard = (socket: TestSocket) =>
  socket.closed === undefined &&
  socket.of("subscription_result").some(({ results }) => results[0].status === "ok") &&
  socket.of("subscription_error").length === 0;
const socketBy = (name: "key" | "user") => (stage: Stage, node: TestServer) =>
  opened(
    async () => {
      const socket = await openSocket(node.url, { key: stage.standing[name]!.text });
      socket.send({ type: "subscribe", subscription: { pattern: "a.>" } });
      const answered = () => socket.closed !== undefined || socket.of("subscription_result").length > 0;
      await until(answered, { about: "the subscription", everyMs: 2 });
      return socket;
    },
    (socket) => ({ works: () => isHeard(socket), close: socket.close }),
  );

/** What makes something under a parent, and calls that are made, or go on, by a right. */
const callers: readonly Minter[] = [
  {
    name: "make a project",
    operation: "projects.create",
    under: ["org"],
    needs: [],
    run: only(
      post(
        boss,
        () => "/api/v1/projects",
        () => ({ name: "n" }),
      ),
    ),
  },
  {
    name: "make an environment",
    operation: "environments.create",
    under: ["org", "project"],
    needs: [],
    run: only(
      post(
        boss,
        () => "/api/v1/environments",
        ({ id, project }) => ({ name: `n-${id}`, project_id: project }),
      ),
    ),
  },
  {
    name: "make a role",
    operation: "roles.create",
    under: ["org"],
    needs: [],
    run: only(
      post(
        boss,
        () => "/api/v1/roles",
        () => ({ name: "n" }),
      ),
    ),
  },
  {
    name: "make a policy",
    operation: "policies.create",
    under: ["org"],
    needs: [],
    run: only(
      post(
        boss,
        () => "/api/v1/policies",
        () => ({ name: "n", effect: "deny", actions: "*", resources: "*" }),
      ),
    ),
  },
  {
    name: "make a secret",
    operation: "secrets.create",
    under: tagsOf.key,
    needs: ["key"],
    run: only(
      post(
        as("key"),
        () => "/api/v1/secrets",
        () => ({ name: "S", value: "v" }),
      ),
    ),
  },
  {
    name: "register a function",
    operation: "functions.register",
    under: tagsOf.key,
    needs: ["key"],
    run: only((stage, node) => node.rpc("SvcService", "RegisterFunction", { id: "n" }, as("key")(stage))),
  },
  {
    name: "make a group",
    operation: "groups.create",
    under: tagsOf.key,
    needs: ["key"],
    run: only((stage, node) =>
      node.rpc("PubSubService", "CreateConsumerGroup", { name: "n", pattern: "order.*" }, as("key")(stage)),
    ),
  },
  {
    name: "emit",
    operation: "events.emit",
    under: tagsOf.key,
    needs: ["key"],
    run: only((stage, node) => node.rpc("SvcService", "Emit", { event: "a.b" }, as("key")(stage))),
  },
  {
    name: "publish",
    operation: "topics.publish",
    under: tagsOf.key,
    needs: ["key"],
    run: only((stage, node) =>
      node.rpc("PubSubService", "Publish", { topic: "a.b", data: {} }, as("key")(stage)),
    ),
  },
  {
    name: "register a worker",
    operation: "workers.register",
    under: tagsOf.key,
    needs: ["key"],
    run: only(
      post(
        as("key"),
        () => "/api/v1/workers/n/register",
        () => ({ function_ids: ["n"] }),
      ),
    ),
  },
  {
    name: "poll",
    operation: "workers.poll",
    under: tagsOf.key,
    needs: ["key"],
    async run(stage, node) {
      const { status } = await stage.call(node, "/api/v1/workers/n/register", {
        ...as("key")(stage),
        body: { function_ids: ["n"] },
      });
      if (status >= 300) return { status };
      let isHeld = true;
      const over = () => {
        isHeld = false;
      };
      void stage.call(node, "/api/v1/workers/n/jobs?available=1", as("key")(stage)).then(over, over);
      return { status, product: { works: () => isHeld } };
    },
  },
  {
    name: "open a socket",
    operation: "ws",
    under: held(tagsOf.key),
    needs: ["key"],
    run: socketBy("key"),
  },
  {
    name: "open a socket as a user",
    operation: "ws",
    under: held(tagsOf.user),
    needs: ["user"],
    run: socketBy("user"),
  },
  {
    name: "subscribe over a stream",
    operation: "pubsub.subscribe",
    under: held(tagsOf.key),
    needs: ["key"],
    run: (stage, node) =>
      opened(
        async () =>
          openSubscriber(transportOf("connect json", { url: node.url, grpcUrl: undefined }), {
            key: stage.standing.key!.text,
            pattern: "a.>",
          }),
        (stream) => ({ works: () => stream.over() === undefined, close: stream.cut }),
      ),
  },
  {
    name: "read by impersonation",
    operation: "users.list",
    under: tagsOf.platformUser,
    needs: ["platformUser"],
    run: only((stage, node) => stage.call(node, "/api/v1/users", impersonating(stage))),
  },
];

export const minters: readonly Minter[] = [...credentialMinters, ...callers];
