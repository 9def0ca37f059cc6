import { SvcError } from "../sdk/index.ts";
import { type Asking, ask } from "./command.ts";
import { doctorFunctionsMax } from "./limits.ts";

/** What a look found; `remedy` says what to do about it. */
export interface Finding {
  check: string;
  state: "ok" | "warning" | "bad";
  found: string;
  remedy?: string;
}

export const ok = (check: string, found: string): Finding => ({ check, state: "ok", found });
export const warning = (check: string, found: string, remedy: string): Finding => ({
  check,
  state: "warning",
  found,
  remedy,
});
export const bad = (check: string, found: string, remedy: string): Finding => ({
  check,
  state: "bad",
  found,
  remedy,
});

interface ConnectedWorker {
  id: string;
  function_ids: string[];
  clock_off_ms?: number;
  definition_conflicts?: string[];
}

/** Those of the functions that the environment does not have. */
async function unregistered(asking: Asking, ids: readonly string[]): Promise<string[]> {
  const missing: string[] = [];
  for (const id of ids.slice(0, doctorFunctionsMax))
    try {
      await ask(asking, "functions.get", { id });
    } catch (error) {
      if (!(error instanceof SvcError) || error.status !== 404) throw error;
      missing.push(id);
    }
  return missing;
}

/** What is wrong with connected workers, which their own logs say as well. */
export async function ofWorkers(asking: Asking): Promise<Finding[]> {
  const { workers } = await ask<{ workers: ConnectedWorker[] }>(asking, "workers.list");
  const off = workers.flatMap(({ id, clock_off_ms: ms }) =>
    ms ? [`${id} is ${Math.abs(ms)} ms ${ms > 0 ? "ahead" : "behind"}`] : [],
  );
  const missing = await unregistered(asking, [...new Set(workers.flatMap((one) => one.function_ids))]);
  const disputed = [...new Set(workers.flatMap((one) => one.definition_conflicts ?? []))];
  const findings = [
    ...(off.length > 0
      ? [warning("workers", `clocks differ from the server's: ${off.join(", ")}`, "set their clocks by NTP")]
      : []),
    ...(missing.length > 0
      ? [
          warning(
            "workers",
            `a worker asks for functions that are not registered: ${missing.join(", ")}`,
            "register them: svc function register, or start a worker of the SDK, which does it",
          ),
        ]
      : []),
    ...(disputed.length > 0
      ? [
          warning(
            "workers",
            `workers serve different definitions of ${disputed.join(", ")}, and runs get either`,
            "stop the old workers: svc worker list",
          ),
        ]
      : []),
  ];
  const count = workers.length;
  return findings.length > 0
    ? findings
    : [ok("workers", count === 0 ? "none is connected" : `${count} connected`)];
}
