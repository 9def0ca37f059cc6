import { existsSync } from "node:fs";
import { relative } from "node:path";
import { isReady } from "./nodes.ts";
import { logOf, nodeUrlOf, type PartState, partsOf, runningOf, type State } from "./state.ts";

export const columns = (rows: string[][]): string => {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
};

const addressOf = (part: PartState): string => {
  if (part.kind === "node") return nodeUrlOf(part);
  const monitor = part.monitorPort === undefined ? "" : `, monitor http://127.0.0.1:${part.monitorPort}`;
  return `${part.kind}://127.0.0.1:${part.port}${monitor}`;
};

/** Of a URL with one host or several. */
const hostsOf = (url: string): string => /^\w+:\/\/(?:[^/?#]*@)?([^/?#]*)/.exec(url)?.[1] ?? "";

const near = (path: string): string => {
  const short = relative(process.cwd(), path);
  return short.startsWith("..") ? path : short;
};

async function stateOf(part: PartState, changed: ReadonlySet<string>): Promise<string> {
  if (!runningOf(part)) return "stopped";
  if (part.kind === "node" && !(await isReady(part))) return "not ready";
  return changed.has(part.name) ? "started" : "was running";
}

/** What runs where, and what to do next. */
export async function tableOf(state: State, changed: ReadonlySet<string>): Promise<string> {
  const rows = [["PART", "WHERE", "STATE", "PROCESS", "LOG"]];
  for (const part of partsOf(state)) {
    const pid = runningOf(part)?.pid;
    rows.push([
      part.name,
      addressOf(part),
      await stateOf(part, changed),
      pid === undefined ? "" : String(pid),
      near(logOf(state, part)),
    ]);
  }
  if (state.adminUrl === undefined) rows.push(["postgres", hostsOf(state.databaseUrl), "not ours", "", ""]);
  if (state.natsUrl !== undefined)
    rows.push(["nats", state.natsUrl.replaceAll(/\/\/[^@/]*@/g, "//"), "not ours", "", ""]);
  const folder = near(state.folder);
  const elsewhere =
    state.postgresFolder === undefined || state.postgresFolder.startsWith(state.folder)
      ? ""
      : `\n  Database    in ${state.postgresFolder}: the user postgres cannot enter ${folder}`;
  const dir = folder === ".svc/cluster" ? "" : ` --dir ${folder}`;
  return `${columns(rows)}

  Key         ${existsSync(state.keyFile) ? `${near(state.keyFile)} (admin, for all nodes)` : "the one that this database has had before"}${elsewhere}
  Use         . ${folder}/env && bun run demo
  Look        for port in ${partsOf(state, "node")
    .map(({ port }) => port)
    .join(" ")}; do curl -s 127.0.0.1:$port/ready; echo; done
  Stop        bun run cluster/down.ts${dir}          with --wipe also its data
  Runbook     cluster/README.md
`;
}
