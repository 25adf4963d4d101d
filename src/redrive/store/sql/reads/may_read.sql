-- What this login may read beyond the lists: payloads, the audit, and messages by their key.
SELECT has_column_privilege('redrive.message', 'body', 'SELECT')
       AND has_column_privilege('redrive.message', 'headers', 'SELECT')
       AND has_table_privilege('redrive.body', 'SELECT') AS payload,
       has_table_privilege('redrive.operator_action', 'SELECT') AS audit
