import type { Command } from "commander";
import { type Io, refused } from "./io.ts";
import { licenceText } from "./licence-text.ts";

/** `svc licenses` */
export function addLicenses(program: Command, io: Io): void {
  program
    .command("licenses")
    .description("Every package that svc is made of, with its version and its licence.")
    .action(async () => {
      const text = await licenceText().catch((error: Error) => {
        throw refused(`the licences cannot be read: ${error.message}`);
      });
      await io.out(text);
    });
}
