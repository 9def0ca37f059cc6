import type { Law } from "./tidy-law.ts";
import { importsOf, type Source } from "./tidy-source.ts";

/** What a file is to the law of imports. `part` is a file of a capability that has none of the four known names. */
type Room =
  | "main"
  | "server"
  | "app"
  | "settings"
  | "kit"
  | "store"
  | "store port"
  | "bus"
  | "bus port"
  | "nodes"
  | "gate"
  | "rules"
  | "rows"
  | "service"
  | "operations"
  | "wire"
  | "part"
  | "edge"
  | "gen"
  | "sdk"
  | "cli"
  | "demo"
  | "dashboard"
  | "docs"
  | "build";

/** `type`: type-only imports. `own`: inside one capability. `own, type`: anything inside, types from elsewhere. */
type When = "yes" | "type" | "own" | "own, type";

const domainBelow: Partial<Record<Room, When>> = {
  kit: "yes",
  gate: "yes",
  "store port": "yes",
  "bus port": "yes",
  rules: "yes",
  rows: "own",
  service: "own, type",
  part: "own, type",
};

/** Who may import whom. What is not written here is refused. */
const arrows: Record<Room, Partial<Record<Room, When>> | "all"> = {
  main: { settings: "yes", server: "yes", app: "yes", kit: "yes", cli: "yes" },
  server: "all",
  // Puts the parts of the server together.
  app: "all",
  settings: { settings: "yes", kit: "yes" },
  kit: { kit: "yes" },
  // The store's type, and what there is in it: the table of tables.
  "store port": { kit: "yes", "store port": "yes", store: "type" },
  store: { kit: "yes", store: "yes", "store port": "yes" },
  "bus port": { kit: "yes", "bus port": "yes" },
  bus: { kit: "yes", bus: "yes", "bus port": "yes" },
  nodes: { kit: "yes", nodes: "yes", "store port": "yes", "bus port": "yes" },
  gate: { kit: "yes", gate: "yes" },
  // The gate is pure, as rules are: what a policy is, it says.
  rules: { kit: "yes", gate: "yes", rules: "own, type", part: "own, type", rows: "type", service: "type" },
  rows: {
    kit: "yes",
    gate: "type",
    "store port": "yes",
    rows: "own",
    rules: "own",
    part: "own",
    service: "own",
  },
  service: domainBelow,
  part: domainBelow,
  wire: {
    kit: "yes",
    gen: "yes",
    wire: "yes",
    rules: "yes",
    part: "own, type",
    service: "own, type",
    rows: "type",
  },
  operations: {
    kit: "yes",
    gen: "yes",
    gate: "yes",
    wire: "yes",
    rules: "yes",
    part: "own, type",
    service: "own, type",
  },
  edge: { edge: "yes", kit: "yes", gate: "yes", gen: "yes", operations: "type" },
  gen: { gen: "yes" },
  sdk: { sdk: "yes" },
  demo: { demo: "yes", sdk: "yes" },
  // `backup` and `restore` work on a database while there is no server, or beside one.
  cli: {
    cli: "yes",
    sdk: "yes",
    kit: "yes",
    settings: "yes",
    store: "yes",
    "store port": "yes",
    // Models search the pages as their readers do.
    docs: "yes",
  },
  // What the API answers is described once: by `proto/` and by the operations.
  dashboard: { dashboard: "yes", sdk: "yes", gen: "type", operations: "type", wire: "type", part: "type" },
  // Reads its own pages.
  docs: { docs: "yes" },
  // Works on the tree as files.
  build: { build: "yes" },
};

const topRooms = [
  "app",
  "settings",
  "kit",
  "store",
  "bus",
  "nodes",
  "gate",
  "edge",
  "gen",
  "sdk",
  "cli",
  "demo",
  "dashboard",
  "docs",
  "build",
] as const;

export function roomOf(path: string): Room | undefined {
  const [top, folder = "", ...rest] = path.split("/");
  if (top !== "src") return undefined;
  if (/^src\/store\/(store|tables\/[a-z-]+|exported-tables|environment-databases)\.ts$/.test(path))
    return "store port";
  if (path === "src/bus/bus.ts") return "bus port";
  if (folder === "domain") {
    // Wing, capability, and inside it as many folders as it takes.
    if (rest.length < 3) return undefined;
    const name = rest.at(-1)!.replace(/\.ts$/, "");
    if (name === "rules" || name === "rows" || name === "service" || name === "operations" || name === "wire")
      return name;
    return "part";
  }
  if (rest.length > 0) return topRooms.find((room) => room === folder);
  return (["main", "server"] as const).find((room) => folder === `${room}.ts`);
}

/**
 * Where one statement spans two capabilities: an event and the runs it starts are written by one flush (src/README.md),
 * so the flush takes the insert fragments of runs.
 */
const exceptions = new Set([
  "src/domain/engine/emit/flush.ts -> src/domain/engine/runs/create.ts",
  // An event arms its debounce entries and joins its batches; what these start is a run: one statement each.
  "src/domain/engine/emit/late-starts.ts -> src/domain/engine/debounce/arm.ts",
  "src/domain/engine/debounce/fire.ts -> src/domain/engine/runs/create.ts",
  "src/domain/engine/emit/late-starts.ts -> src/domain/engine/batches/join.ts",
  "src/domain/engine/batches/close.ts -> src/domain/engine/runs/create.ts",
  // What events ask of quotas is taken by the statement that writes them.
  "src/domain/engine/emit/metering.ts -> src/domain/engine/quotas/rows.ts",
  "src/domain/engine/emit/rows.ts -> src/domain/engine/quotas/rows.ts",
  "src/domain/log/topics/flush.ts -> src/domain/engine/quotas/rows.ts",
  "src/domain/log/topics/rows.ts -> src/domain/engine/quotas/rows.ts",
  "src/domain/state/kv/change-rows.ts -> src/domain/engine/quotas/rows.ts",
  // Events and topics append to their logs in the same steps.
  "src/domain/engine/emit/flush.ts -> src/domain/log/core/append.ts",
  "src/domain/log/topics/flush.ts -> src/domain/log/core/append.ts",
]);

const capabilityOf = (path: string) => path.match(/^src\/domain\/([^/]+\/[^/]+)\//)?.[1];

export function arrowBreaches(sources: Source[]): string[] {
  const breaches: string[] = [];
  for (const source of sources) {
    const room = roomOf(source.path);
    if (room === undefined) {
      breaches.push(`${source.path}:1: stands in no room of the house (src/README.md)`);
      continue;
    }
    const allowed = arrows[room];
    if (allowed === "all") continue;
    for (const one of importsOf(source)) {
      if (!one.ours || exceptions.has(`${source.path} -> ${one.target}`)) continue;
      const target = roomOf(one.target);
      const when = target && allowed[target];
      const own = capabilityOf(source.path) === capabilityOf(one.target);
      const passes =
        when === "yes" ||
        (when === "type" && one.typeOnly) ||
        (when === "own" && own) ||
        (when === "own, type" && (own || one.typeOnly));
      if (!passes) {
        const only = when && ` (only: ${when})`;
        breaches.push(
          `${source.path}:${one.line}: ${room} may not import ${target ?? "that"}: ${one.target}${only ?? ""}`,
        );
      }
    }
  }
  return breaches;
}

/**
 * cluster/ (how to run several nodes) starts svc as a program and is used by what installs packages: it imports built-in
 * modules and itself, nothing of src/ and no package.
 */
export function clusterBreaches(sources: Source[]): string[] {
  return sources.flatMap((source) =>
    importsOf(source)
      .filter(({ target, ours }) => (ours ? !target.startsWith("cluster/") : !/^(node:|bun$)/.test(target)))
      .map(({ target, line }) => `${source.path}:${line}: cluster/ stands alone: ${target}`),
  );
}

/** Capabilities stand low to high: types count too, as a cycle of types is a cycle of understanding. */
/** Places of imports by what imports and what is imported, in the same words. */
type ArrowsOut = Map<string, Map<string, string>>;

export function capabilityCycles(sources: Source[]): string[] {
  const arrowsOut: ArrowsOut = new Map();
  for (const source of sources) {
    const from = capabilityOf(source.path);
    if (from === undefined) continue;
    for (const one of importsOf(source)) {
      const to = one.ours ? capabilityOf(one.target) : undefined;
      if (to === undefined || to === from) continue;
      const out = arrowsOut.get(from) ?? new Map<string, string>();
      arrowsOut.set(from, out.set(to, out.get(to) ?? `${source.path}:${one.line}`));
    }
  }
  return cyclesOf(arrowsOut, "capabilities");
}

/** Imports of types count too: whoever reads one file of a circle has to read them all. */
function fileCycles(sources: Source[]): string[] {
  const arrowsOut: ArrowsOut = new Map();
  for (const source of sources)
    arrowsOut.set(
      source.path,
      new Map(
        importsOf(source).flatMap(({ ours, target, line }) =>
          ours ? [[target, `${source.path}:${line}`]] : [],
        ),
      ),
    );
  return cyclesOf(arrowsOut, "files");
}

const types = (target: string) => `import type { One } from "${target}";\n`;

export const fileCircles: Law = {
  name: "files have an order: no circles, types included",
  rule: fileCycles,
  together: true,
  bad: [
    ["src/sdk/a.ts", types("./b.ts"), 1],
    ["src/sdk/b.ts", types("./a.ts"), 1],
  ],
  good: [["src/sdk/a.ts", types("./b.ts")]],
};

function cyclesOf(arrowsOut: ArrowsOut, what: string): string[] {
  const cycles: string[] = [];
  const done = new Set<string>();
  const visit = (name: string, way: string[]) => {
    const start = way.indexOf(name);
    if (start >= 0) {
      const circle = [...way.slice(start), name];
      const places = circle.slice(1).map((to, index) => arrowsOut.get(circle[index] ?? "")?.get(to));
      cycles.push(`${places.join(", ")}: ${what} in a circle: ${circle.join(" -> ")}`);
      return;
    }
    if (done.has(name)) return;
    for (const to of arrowsOut.get(name)?.keys() ?? []) visit(to, [...way, name]);
    done.add(name);
  };
  for (const name of arrowsOut.keys()) visit(name, []);
  return cycles;
}
