import { writeMatrix } from "./auth-matrix.ts";
import { writeReference } from "./reference.ts";
import { writeWire } from "./wire.ts";

// Every text that is written from the code and compared with it by a test.
await writeWire();
await writeMatrix();
await writeReference();
process.exit(0);
