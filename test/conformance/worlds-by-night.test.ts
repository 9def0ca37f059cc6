import { worldsByNight } from "../support/worlds-by-night.ts";
import { keptIn } from "./worlds.ts";

for (const world of worldsByNight) keptIn(world);
