/**
 * `bun run bench:access gate`: the CPU that three roles and twenty policies add to a call, at the gate itself: one org without
 * policies (A), one with them (B), and the first again (A), in one process, turn about.
 */
import { type EnvironmentScope, openGate } from "../../src/gate/gate.ts";
import { snapshotOf } from "../../src/gate/snapshot.ts";
import type { Caller } from "../../src/kit/caller.ts";
import { systemClock } from "../../src/kit/clock.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { startTestServer } from "../support/server.ts";
import { median } from "./figures.ts";

const rounds = 15;
const callsEach = 20_000;

const roles = ["one", "two", "three"].map((name) => ({ id: `role_${name}`, name, base: "developer" }));

/** None of them denies these calls, and all have to be asked: the dearest there is. */
const policies = Array.from({ length: 20 }, (_, number) => {
  const kinds = [
    { resources: "irn:svc:*:*:run:*:secret-*", condition: "" },
    { resources: "irn:svc:*:*:*:production:*", condition: "time.hour < 0" },
    { resources: "*", condition: `subject.id == 'ak_${number}' && !('role_one' in subject.roles)` },
    { resources: "*", condition: "resource.id.startsWith('payroll.') && request.reads == false" },
  ];
  return {
    id: `pol_${number}`,
    name: `policy ${number}`,
    actions: "runs:*, events:*",
    ...kinds[number % 4]!,
  };
});

export async function benchGate(): Promise<void> {
  const server = await startTestServer({ engine: "libsql" });
  const operationOf = (name: string) =>
    server.running.registry.find((operation) => operation.name === name) as Operation;
  const calls: [Operation, object][] = [
    [operationOf("events.emit"), { event: "order.placed", data: {} }],
    [operationOf("runs.get"), { id: "run_01m7z5rvkc2c6xh2p8nthvyq6q" }],
    [operationOf("runs.cancel"), { id: "run_01m7z5rvkc2c6xh2p8nthvyq6q" }],
  ];
  const clock = systemClock();
  const place: EnvironmentScope = { orgId: "org_default", name: "production", projectId: "proj_default" };
  const gateOf = (withPolicies: boolean) => {
    const snapshot = snapshotOf({
      orgId: "org_default",
      version: 1,
      roles,
      policies: withPolicies ? policies : [],
      assigned: withPolicies
        ? policies.map(({ id }, number) => ({ roleId: roles[number % 3]!.id, policyId: id }))
        : [],
    });
    const snapshots = { known: () => snapshot, of: async () => snapshot };
    return openGate({ snapshots, scopeOf: async () => place, clock });
  };
  const bare = gateOf(false);
  const full = gateOf(true);
  const caller: Caller = {
    kind: "key",
    id: "ak_caller",
    orgId: "org_default",
    roles: roles.map(({ id }) => id),
  };
  const microsOf = async (gate: typeof bare) => {
    const before = process.cpuUsage();
    for (let turn = 0; turn < callsEach; turn++) {
      const [operation, input] = calls[turn % calls.length]!;
      const call = { caller, environmentId: "env_default", method: "POST" };
      await gate.gate(call, operation);
      await gate.guard(call, operation, input);
    }
    const { user, system } = process.cpuUsage(before);
    return (user + system) / callsEach;
  };
  for (let warm = 0; warm < 3; warm++) for (const gate of [bare, full]) await microsOf(gate);
  const [first, second, third]: [number[], number[], number[]] = [[], [], []];
  for (let round = 0; round < rounds; round++) {
    first.push(await microsOf(bare));
    second.push(await microsOf(full));
    third.push(await microsOf(bare));
  }
  const hundredths = (value: number) => Math.round(value * 100) / 100;
  console.log(
    JSON.stringify(
      {
        calls: rounds * callsEach,
        withoutMicros: hundredths(median([...first, ...third])),
        withMicros: hundredths(median(second)),
        addedMicros: hundredths(median(second.map((micros, at) => micros - (first[at]! + third[at]!) / 2))),
        mostAllowed: 30,
      },
      null,
      2,
    ),
  );
  await server.stop();
}
