/**
 * Structured logging as the domain sees it; `edge` and `server.ts` decide where lines go. Never pass a
 * secret.
 */
export interface Log {
  debug(event: string, fields?: Record<string, unknown>): void;
  info(event: string, fields?: Record<string, unknown>): void;
  warn(event: string, fields?: Record<string, unknown>): void;
  error(event: string, fields?: Record<string, unknown>): void;
}

const nothing = () => {};

export const silentLog: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing };
