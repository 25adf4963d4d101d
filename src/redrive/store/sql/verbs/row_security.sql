-- limit_rows: readers see the rows of a table for which p_using holds; the engine's owner sees all of them. Called by zz_grants.sql of the
-- engine and of systems.
CREATE OR REPLACE FUNCTION redrive.limit_rows(p_table regclass, p_using text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', p_table);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', p_table);
    EXECUTE format('DROP POLICY IF EXISTS engine ON %s', p_table);
    EXECUTE format('CREATE POLICY engine ON %s TO %I USING (true) WITH CHECK (true)', p_table, current_user);
    EXECUTE format('DROP POLICY IF EXISTS tenant ON %s', p_table);
    EXECUTE format('CREATE POLICY tenant ON %s FOR SELECT TO redrive_viewer, redrive_operator, redrive_auditor USING (%s)', p_table, p_using);
END $body$;
