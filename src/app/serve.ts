import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { furnish, type WantedOrg } from "../domain/access/tenancy/furnish.ts";
import { systemClock } from "../kit/clock.ts";
import { announceServer, ownAddress } from "../kit/discovery-file.ts";
import { systemIds } from "../kit/ids.ts";
import type { Log } from "../kit/log.ts";
import { logLines, shownText } from "../kit/log-lines.ts";
import { redactText } from "../kit/redact.ts";
import { version } from "../kit/version.ts";
import { type RunningServer, startServer } from "../server.ts";
import type { Config } from "../settings/settings.ts";
import { dashboardAddress } from "./identity.ts";
import { StartFailure } from "./start-failure.ts";

const startFailed = 1;

/** What a person needs next who has just started the server. */
function banner(server: RunningServer): string {
  const { url, grpcUrl, config, bootstrapped, signInToken, bootstrapKeyFile } = server;
  const place = config.databaseUrl === undefined ? config.db : "PostgreSQL";
  const lines = [`svc ${version} on ${url}, data in ${place}`, ""];
  const file = resolve(bootstrapKeyFile);
  let key = "";
  if (config.dev) {
    lines.push("  Key         none needed: --dev lets everyone in as admin");
  } else if (bootstrapped.key === "failed") {
    lines.push(`  Key         none: ${file} cannot be written. Start again with --bootstrap-key-file FILE`);
  } else if (existsSync(file)) {
    key = ` -H "Authorization: Bearer $(sed -n 's/.*"key": "\\(.*\\)".*/\\1/p' ${file})"`;
    lines.push(`  Key         ${file}${bootstrapped.key === "issued" ? " (new)" : ""}`);
  }
  if (bootstrapped.password !== undefined) {
    lines.push(`  Dashboard   ${dashboardAddress}, password ${bootstrapped.password} (shown only now)`);
  }
  lines.push(`  Open        ${url}/dashboard`);
  if (signInToken !== undefined && !config.dev) {
    lines.push(`  Sign in     ${url}/dashboard/sign-in#${signInToken} (works once, here, for ten minutes)`);
    if (bootstrapped.key === "issued" && bootstrapped.password === undefined)
      lines.push(
        `  Afterwards  as ${dashboardAddress}, with the dashboard_password that stands beside the key`,
      );
  }
  if (grpcUrl !== undefined) lines.push(`  gRPC        ${grpcUrl}`);
  lines.push(`  Try         curl${key} ${url}/api/v1/routes`);
  // The executable has no demo.
  if (!Bun.isStandaloneExecutable) lines.push("  Demo        bun run demo");
  lines.push("");
  return `${lines.join("\n")}\n`;
}

/** The first admin key where it is written; empty where none is needed, or it is gone. */
function keyIn(file: string): string {
  try {
    return (JSON.parse(readFileSync(file, "utf8")) as { key?: string }).key ?? "";
  } catch {
    return "";
  }
}

/** Says where the server is, to programs of its folder; what it answers takes that back. */
function announced({ url, config, bootstrapKeyFile }: RunningServer, log: Log): () => void {
  const address = ownAddress(url);
  if (config.noDiscovery || !(config.discovery ?? config.dev) || address === undefined) return () => {};
  try {
    const apiKey = config.dev ? "" : keyIn(bootstrapKeyFile);
    return announceServer(process.cwd(), { url: address, apiKey, environment: "default" });
  } catch (error) {
    // A folder that only reads: all others name the server.
    log.warn("discovery.unwritten", { error });
    return () => {};
  }
}

/** Serves until a signal ends the process. */
export async function serve(config: Config, organizations: readonly WantedOrg[] = []): Promise<void> {
  const clock = systemClock();
  const format = config.logFormat ?? (process.stdout.isTTY ? "text" : "json");
  const nodeId = config.nodeId ?? systemIds(clock).next("node");
  const log = logLines({ level: config.logLevel, format, clock, base: { node: nodeId } });
  let server: RunningServer | undefined;
  let leave = () => {};
  let stopping = false;
  const stop = async (signal: string) => {
    // A second signal ends the process at once, and so does the first while there is nothing to drain.
    if (stopping || !server) process.exit(stopping ? startFailed : 0);
    stopping = true;
    log.info("server.stopping", { signal });
    leave();
    try {
      await server.stop();
      log.info("server.stopped");
      process.exit(0);
    } catch (error) {
      log.error("server.stop_failed", { error });
      process.exit(startFailed);
    }
  };
  process.on("SIGTERM", () => void stop("SIGTERM"));
  process.on("SIGINT", () => void stop("SIGINT"));
  // An unhandled rejection is a defect of one part: it must not end a process that does other work.
  let unhandled = 0;
  process.on("unhandledRejection", (error) =>
    log.error("process.unhandled_rejection", { count: ++unhandled, error }),
  );

  try {
    const ids = systemIds(clock);
    server = await startServer({ ...config, nodeId }, { clock, log, ids });
    await furnish({ store: server.domain.store, clock, ids }, organizations);
  } catch (error) {
    const known = error instanceof StartFailure || !(error instanceof Error) || error.stack === undefined;
    if (!known) log.error("server.start_failed", { error });
    const why = redactText(error instanceof Error ? error.message : String(error));
    process.stderr.write(`svc: ${shownText(why)}\n`);
    process.exit(startFailed);
  }
  leave = announced(server, log);
  // Lines of JSON stay alone on their stream.
  (format === "text" ? process.stdout : process.stderr).write(shownText(banner(server)));
}
