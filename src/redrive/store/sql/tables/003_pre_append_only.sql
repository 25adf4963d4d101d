-- What is written once stays as it was: no UPDATE, DELETE or TRUNCATE by any role (retention drops whole partitions).
CREATE FUNCTION redrive.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION '% on %.% is refused: it is append-only.', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME USING ERRCODE = '42501';
END $body$;

DO $protect$
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['message', 'body', 'attempt', 'operator_action', 'late_answer', 'idempotency'] LOOP
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON redrive.%I '
                       'FOR EACH ROW EXECUTE FUNCTION redrive.refuse_change()', v_table);
        EXECUTE format('CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change()', v_table);
    END LOOP;
    -- A trigger for TRUNCATE is not handed down to partitions; make_partition does the same for those to come.
    FOREACH v_table IN ARRAY ARRAY['message_default', 'body_default', 'attempt_default'] LOOP
        EXECUTE format('CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change()', v_table);
    END LOOP;
END
$protect$;
