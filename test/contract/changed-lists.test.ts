import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { changedLists, changingOperations } from "../../src/domain/realtime/pubsub/changed-lists.ts";
import { subjectOf } from "../../src/gate/subject.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

type Lists = typeof changedLists;

/** The operation that answers each list. */
const answeredBy: { [Namespace in keyof Lists]: Record<keyof Lists[Namespace], string> } = {
  changed: {
    ...{ projections: "projections.list", kv: "kv.buckets.list", topics: "topics.list" },
    ...{
      tools: "agentTools.list",
      repairs: "repairs.list",
      quotas: "quotas.get",
      retention: "retention.get",
      alerts: "alerts.list",
    },
    ...{ users: "users.list", roles: "roles.list", keys: "keys.list", sessions: "sessions.list" },
    ...{ policies: "policies.list", audit: "audit.authTrail" },
  },
  platform: {
    ...{ users: "platform.users.list", roles: "platform.roles.list", keys: "keys.list" },
    ...{ sessions: "platform.sessions.list", policies: "platform.policies.list" },
    ...{ audit: "platform.audit.list", tenants: "platform.tenants.list", capacity: "capacity.stats" },
  },
};

/** Writes that change no list, and those of which their service tells. */
const untold: Record<string, string> = {
  "projections.poll": "the position moves: frames of projections tell of that",
  "projections.ack": "the position moves",
  "projections.save": "the position moves",
  "projections.stream": "the position moves",
  "agentTools.invoke": "calls a tool",
  "alerts.testRule": "sends a message",
  "environments.update": "no list of these has its name",
  "users.unlink": "no list of these has identities",
  "platform.users.unlink": "likewise",
  "auth.login": "the session tells of itself once it is known whose it is",
  "auth.loginByLink": "likewise",
  "auth.desktopSession": "likewise",
  "platform.auth.login": "likewise",
};

describe("frames of changed lists", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
  });
  afterAll(() => server?.stop());

  test("cost what the operation costs that answers the list", () => {
    for (const namespace of ["changed", "platform"] as const)
      for (const [list, asked] of Object.entries(changedLists[namespace])) {
        const name = (answeredBy[namespace] as Record<string, string>)[list];
        const operation = server.running.registry.find((one) => one.name === name)!;
        const { action, platformAction } = operation;
        const reads = namespace === "platform" ? (platformAction ?? action) : action;
        expect([name, asked]).toEqual([name, { reads: reads!, type: subjectOf(operation).type }]);
      }
  });

  test("are sent for every operation that changes one", () => {
    const told = new Set(changingOperations());
    const capabilityOf = (name: string) => name.slice(0, name.lastIndexOf("."));
    const capabilities = new Set([...told].map(capabilityOf));
    const writes = server.running.registry.filter(({ reads }) => !reads).map(({ name }) => name);
    expect([...told].filter((name) => !writes.includes(name))).toEqual([]);
    const missed = writes.filter((name) => capabilities.has(capabilityOf(name)) && !told.has(name));
    expect(missed.filter((name) => !(name in untold))).toEqual([]);
    expect(Object.keys(untold).filter((name) => told.has(name) || !writes.includes(name))).toEqual([]);
  });
});
