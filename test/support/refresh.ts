import { dashboardJson, dashboardPath } from "../../cluster/observability/dashboard.ts";
import { writeMatrix } from "./auth-matrix.ts";
import { writeCatalogue } from "./catalogue.ts";
import { writeCommands } from "./commands.ts";
import { writeDocs } from "./docs.ts";
import { writeReference } from "./reference.ts";
import { writeWire } from "./wire.ts";

// Every text that is written from the code and compared with it by a test.
await writeCatalogue();
await writeWire();
await writeMatrix();
await writeReference();
await writeCommands();
await writeDocs();
await Bun.write(dashboardPath, dashboardJson());
process.exit(0);
