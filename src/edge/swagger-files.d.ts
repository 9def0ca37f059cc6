/**
 * Files of swagger-ui-dist that are sent as they are: an import gives the path, in a compiled program as
 * well.
 */
declare module "swagger-ui-dist/swagger-ui-bundle.js";
declare module "swagger-ui-dist/swagger-ui.css";
