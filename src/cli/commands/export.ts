import { existsSync, renameSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { resolve } from "node:path";
import { bytesOf } from "../call.ts";
import { type Asking, addPlain, askAndShow, type PlainCommand } from "../command.ts";
import type { LoneCommand } from "../group.ts";
import { requireWhole } from "../import-file.ts";
import { CommandFailure, exitCodes, usage } from "../io.ts";
import { toldEveryMs } from "../limits.ts";
import { operationNamed } from "../operations.ts";

const operation = operationNamed("orgs.export");

/** Whole under its name, or not there: what is cut off is removed. */
async function exportTo(
  asking: Asking,
  input: Readonly<Record<string, unknown>>,
  name: string,
): Promise<void> {
  const { io, connection } = asking;
  const file = resolve(io.folder, name);
  if (existsSync(file)) throw usage(`--file: ${file} exists`);
  const part = `${file}.part`;
  const body = await bytesOf(connection, operation, input, io.signal);
  const handle = await open(part, "w", 0o600);
  try {
    let bytes = 0;
    let toldAt = io.clock.elapsed();
    for await (const piece of body) {
      await handle.write(piece);
      bytes += piece.length;
      const now = io.clock.elapsed();
      if (now - toldAt < toldEveryMs) continue;
      toldAt = now;
      io.status(`${Math.round(bytes / 1_000_000)} MB`);
    }
    await handle.sync();
    await handle.close();
    const { lineCount } = await requireWhole(part);
    renameSync(part, file);
    io.note(`${file}: ${lineCount} lines, whole by its checksum`);
  } catch (error) {
    if (io.signal.aborted)
      throw new CommandFailure(exitCodes.interrupted, "interrupted: nothing was written");
    throw error;
  } finally {
    await handle.close().catch(() => {});
    rmSync(part, { force: true });
  }
}

const command: PlainCommand = {
  name: "export",
  operation: operation.name,
  flagsToo: [["--file <file>", "The file that it goes to; standard output without."]],
  does: (asking, input, { file }) =>
    file === undefined ? askAndShow(asking, operation, input) : exportTo(asking, input, String(file)),
};

export const exportCommand: LoneCommand = {
  name: "export",
  about: operation.about,
  add: (program, io) => void addPlain(program, command, io),
};
