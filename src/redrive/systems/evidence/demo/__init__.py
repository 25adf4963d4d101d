"""The demo of evidence: a merchant's archive, the Case API that attaches its files, and two mails."""
