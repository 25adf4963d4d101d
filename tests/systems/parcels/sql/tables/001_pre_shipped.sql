CREATE SCHEMA parcels;
CREATE TABLE parcels.shipped (parcel text PRIMARY KEY, track text NOT NULL);
