import { Fault } from "../kit/fault.ts";
import { FileProblem } from "../kit/secret-files.ts";
import { StoreError } from "../store/store.ts";

/** A start that failed for a reason that the operator can do something about; the message is for them. */
export class StartFailure extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = "StartFailure";
  }
}

/** The error in words for the operator, where there are any; `setting` is what chooses another port. */
export function explained(
  error: unknown,
  place: { host: string; port: number },
  setting = "--port",
): unknown {
  if (error instanceof StartFailure) return error;
  if (error instanceof Fault) return new StartFailure(error.message, error);
  if (error instanceof FileProblem) return new StartFailure(error.message, error.cause);
  const { code, path } = error as NodeJS.ErrnoException;
  if (code !== undefined && path !== undefined)
    return new StartFailure(`a file cannot be opened: ${(error as Error).message}`, error);
  const address = `${place.host}:${place.port}`;
  if (code === "EADDRINUSE") {
    return new StartFailure(
      `${address} is in use: stop the program that has it, or choose another ${setting}`,
      error,
    );
  }
  if (code === "EACCES" || code === "EADDRNOTAVAIL") {
    return new StartFailure(`cannot listen on ${address}: ${(error as Error).message}`, error);
  }
  if (!(error instanceof StoreError)) return error;
  if (error.trouble === "full")
    return new StartFailure(
      `the database has no room left: make some, and start again (${error.detail})`,
      error,
    );
  if (error.trouble === "unavailable") {
    const what = /read-?only/.test(error.detail) ? "written" : "reached";
    return new StartFailure(`the database cannot be ${what}: ${error.detail}`, error);
  }
  return error;
}
