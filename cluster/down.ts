import { rmSync } from "node:fs";
import { unknownPart } from "./layout.ts";
import { natsStoreOf } from "./nats.ts";
import { asCommand, type DownOptions, downUsage, parseDown, Refused } from "./options.ts";
import { dataOf, makePostgresFolder } from "./postgres.ts";
import { type PartState, partsOf, readState, type State, writeEnvironment, writeState } from "./state.ts";
import { stopParts } from "./stop.ts";

const remove = (folder: string) => rmSync(folder, { recursive: true, force: true, maxRetries: 3 });

/** Forgets one part's data. A node has none, so the node itself is forgotten. */
async function wipePart(state: State, part: PartState): Promise<void> {
  if (part.kind === "node") state.parts = state.parts.filter(({ name }) => name !== part.name);
  if (part.kind === "nats") remove(natsStoreOf(state, part));
  if (part.kind === "postgres" && partsOf(state, "postgres").length > 1) remove(dataOf(state, part));
  else if (part.kind === "postgres" && state.postgresFolder !== undefined) {
    remove(state.postgresFolder);
    state.postgresFolder = await makePostgresFolder(state.folder);
    // Its key is no longer in any database; the next start writes another.
    rmSync(state.keyFile, { force: true });
  }
  writeState(state);
  writeEnvironment(state);
  console.log(part.kind === "node" ? `${part.name} forgotten` : `data of ${part.name} removed`);
}

async function down(options: DownOptions): Promise<void> {
  const { folder, only, wipe } = options;
  const state = readState(folder);
  // Without its state nobody knows whether this folder is ours to remove.
  if (!state) throw new Refused(`there is no cluster in ${folder}`);
  const part = partsOf(state).find(({ name }) => name === only);
  if (only !== undefined && !part) throw unknownPart(state, only);

  await stopParts(state, part ? [part.name] : partsOf(state).map(({ name }) => name));
  if (!wipe) return;
  if (part) return wipePart(state, part);
  if (state.postgresFolder !== undefined) remove(state.postgresFolder);
  remove(folder);
  console.log(`${folder} removed`);
}

await asCommand(async () => {
  const options = parseDown(process.argv.slice(2));
  if (options) await down(options);
  else console.log(downUsage);
});
