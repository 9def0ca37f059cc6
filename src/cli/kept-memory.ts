/**
 * Bun's allocator gives free memory back to the system at each idle moment, and again whenever some has been
 * free for 100 ms. A server is idle between any two requests, and pays a page fault or two for each of them
 * (Y9). Restarted with these, it keeps free memory for a minute.
 */
export const kept = {
  MIMALLOC_PURGE_DELAY: "60000",
  /** A page of which one block is in use keeps all of its free ones. */
  MIMALLOC_PURGE_HOLES: "0",
};

/** The runtime reads this at its start only. Its own bound is 256 outgoing calls at once for all tenants. */
const calls = { BUN_CONFIG_MAX_HTTP_REQUESTS: "400" };

export interface Program {
  execPath: string;
  /** Flags of Bun itself. */
  execArgv: readonly string[];
  argv: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  /** Bun is part of it, and so is the program's file. */
  isExecutable: boolean;
}

/** What to start in place of this program; undefined where the allocator's memory is already configured. */
export function keepingMemory({ execPath, execArgv, argv, env, isExecutable }: Program) {
  if (Object.keys(kept).some((name) => env[name] !== undefined)) return undefined;
  const args = isExecutable ? argv.slice(2) : [...execArgv, ...argv.slice(1)];
  return { args: [execPath, ...args], env: { ...calls, ...env, ...kept } };
}

/**
 * Restarts this program in this process, because its allocator reads its settings only at the start. Does
 * nothing the second time, and where the system cannot.
 */
export function keepMemory(): void {
  const { execPath, execArgv, argv, env } = process;
  const next = keepingMemory({ execPath, execArgv, argv, env, isExecutable: Bun.isStandaloneExecutable });
  if (next === undefined || process.platform === "win32") return;
  try {
    process.execve?.(execPath, next.args, next.env);
  } catch {
    // A server that gives its memory back is slower, and no worse.
  }
}
