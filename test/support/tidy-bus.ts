import type { Law } from "./tidy-law.ts";
import { matches, type Rule, within } from "./tidy-rules.ts";
import { importsOf } from "./tidy-source.ts";

/** The SDK, the demo and the CLI have no bus, and transports of their own. */
const withoutBus = within("src/bus/", "src/sdk/", "src/demo/", "src/cli/");
/** What of src/bus the rest may import. */
const busDoors = new Set(["src/bus/bus.ts", "src/bus/open.ts"]);
const uncheckedCalls =
  /\.\s*(hint|onHint|requestMany|onRequest)\s*\(|\bbus\s*\??\.\s*(send|request)\s*\(|\bBusTransport\b/g;

/** A payload that skips the shapes of channels and requests fails deep inside the server when it is malformed. */
const messageBreaches: Rule = (sources) => {
  const bound = sources.filter((source) => !withoutBus(source));
  const say = (found: string) => `nodes exchange messages over bus.channel, channels or requests: ${found}`;
  const imported = bound.flatMap((source) =>
    importsOf(source)
      .filter(({ target }) => target.startsWith("src/bus/") && !busDoors.has(target))
      .map(({ line, target }) => `${source.path}:${line}: ${say(target)}`),
  );
  return [...matches(bound, uncheckedCalls, say), ...imported];
};

const imports = (target: string) => `import { one } from "${target}";\n`;
const types = (target: string) => `import type { One } from "${target}";\n`;

export const messageShapes: Law = {
  name: "messages between nodes have shapes that are checked",
  rule: messageBreaches,
  bad: [
    ["src/app/engine.ts", `\nbus.hint("dispatch", JSON.stringify({ from }));`, 2],
    ["src/app/engine.ts", `host.bus.onHint("dispatch", (payload) => {});`, 1],
    ["src/app/outbox.ts", `await bus.send("runs.control", entry.payload, 5);`, 1],
    ["src/app/cluster.ts", `await host.bus\n  .requestMany("who", "", limits);`, 2],
    ["src/domain/cluster/nodes/service.ts", `bus.request("who", "", 5);`, 1],
    ["src/domain/cluster/nodes/service.ts", `bus.onRequest("who", async () => nodeId);`, 1],
    ["src/app/host.ts", imports("../bus/nats.ts"), 1],
    ["src/app/host.ts", `\n${imports("../bus/channel.ts")}`, 2],
    ["src/domain/cluster/nodes/service.ts", `import type { BusTransport } from "../../../bus/bus.ts";`, 1],
  ],
  good: [
    ["src/bus/channel.ts", `transport.hint(subject, JSON.stringify(message));`],
    [
      "src/app/engine.ts",
      `const queued = bus.channel("dispatch", Queued); // not bus.hint(\nqueued.publish(one);`,
    ],
    ["src/app/host.ts", imports("../bus/open.ts") + types("../bus/bus.ts")],
    ["src/sdk/worker/worker.ts", `await client.transport.send({ method: "PUT" }); session.request(head);`],
    ["src/sdk/wire/transport.ts", "export interface Transport { send(): void }"],
  ],
};
