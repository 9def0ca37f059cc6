import { resolve } from "node:path";
import { dashboardJson, dashboardPath } from "../../cluster/observability/dashboard.ts";
import { writeMatrix } from "./auth-matrix.ts";
import { writeCatalogue } from "./catalogue.ts";
import { writeCommands } from "./commands.ts";
import { writeDocs } from "./docs.ts";
import { writeReference } from "./reference.ts";
import { recordTimes } from "./times.ts";
import { writeWire } from "./wire.ts";

// Every text that is written from the code and compared with it by a test, and the times of the last run of all tests.
await writeCatalogue();
await writeWire();
await writeMatrix();
await writeReference();
await writeCommands();
await writeDocs();
await Bun.write(dashboardPath, dashboardJson());
await recordTimes(resolve(import.meta.dir, "../.."));
process.exit(0);
